"""The rows of a table of pretraining as words: each a training with a few fields changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from sinkjax.config_files import documents
from sinkjax.config_files.checks import at_least
from sinkjax.errors import SinkjaxError, one_of
from sinkjax.papers.pretrain._sizes import SIZES, SizeName
from sinkjax.studies.config import Trains
from sinkjax.studies.scope import Scope
from sinkjax.studies.study import TrainingSpec
from sinkjax.studies.vocabulary import Training
from sinkjax.train.config import Training as Trained

OVERRIDES = ("steps", "text", "micro_batch", "mesh")  # settings of a study that replace fields of its size


@dataclass(frozen=True, kw_only=True)
class Pretraining(Trains):
    """Settings of every table of pretraining."""

    seeds: int = 1
    """runs of each row, each with its own initialisation and order of the data"""
    size: SizeName = "mini"
    """size of models and trainings (`sinkjax/papers/pretrain/sizes.yaml`)"""
    steps: int | None = None
    """training steps of a run; by default the size's"""
    text: str | None = None
    """training text: "packaged", a file, a folder or the hub id of a data set; by default the size's"""
    micro_batch: int | None = None
    """sequences whose gradient is computed at a time, by default as for the size"""
    mesh: tuple[int, int] | None = field(default=None, metadata=documents.CHOICE)
    """devices of one run: the number that share the sequences, and the number that share the matrices; by default one"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, steps=1, micro_batch=1)
        one_of("size", self.size, SIZES)


@Training.define(config=Pretraining, compared=True)
def row(
    scope: Scope,
    name: str,
    label: str = "",
    changes: object = (),
    times: object = (),
    paper: object = (),
    sizes: tuple[SizeName, ...] = (),
) -> TrainingSpec | None:
    """A row of a table: a language model of the study's size, with a few fields changed.

    Args:
        scope: The study's scope.
        name: Name of the row.
        label: Its title; "": its name.
        changes: Fields of the training that differ from the size's.
        times: Factors on numbers of the size; for a window that is not stated, on the context.
        paper: Measure -> the paper's number, or its words.
        sizes: The sizes with this row; by default all.

    Returns:
        The training; None if the study's size does not have the row.

    Raises:
        SinkjaxError: Fields that do not fit, with the name of the row; an unknown size.
    """
    from sinkjax.papers.pretrain._log import measure, so_far
    from sinkjax.tasks import registry
    from sinkjax.train.task import ModelTask

    for size in sizes:
        one_of("sizes", size, SIZES)
    if sizes and scope.config.size not in sizes:
        return None
    stated = training(scope.config, name, dict(scope.get(changes)), dict(scope.get(times)))
    try:
        task = registry.task(stated)
    except SinkjaxError as error:
        raise SinkjaxError(f"row {name}: {error}") from None
    (variant,) = task.variants
    return TrainingSpec(name, stated, cast(ModelTask, task).model(variant), measure, so_far)


def training(config: Pretraining, name: str, changes: Mapping[str, object], times: Mapping[str, float]) -> Trained:
    """The fields of the size, of the study and of the row. Errors: fields that do not fit."""
    from sinkjax.tasks import registry

    what, size = f"row {name}", SIZES[config.size]
    stated: dict[str, object] = {"seed": config.seed, "seeds": config.seeds, "dtype": config.dtype}
    stated |= {field: value for field in OVERRIDES if (value := getattr(config, field)) is not None}
    values = {**size.fields, **stated, **changes}
    cls = registry.config_type(size.task)
    base = documents.build(cls, values, what)
    scaled = {field: _times(base, field, factor, what) for field, factor in times.items()}
    found: Trained = documents.build(cls, {**values, **scaled}, what)
    if len(found.learning_rates) != 1:
        raise SinkjaxError(f"{what}: a row has one learning rate, not {len(found.learning_rates)}")
    return found


def _times(base: Trained, name: str, factor: float, what: str) -> float | tuple[float, ...]:
    """A field of the size times a factor, rounded and at least 1 if it is an integer; for a window not stated, the context."""
    value = getattr(base, name, None)
    if name == "window" and value is None:
        value = vars(base)["context"]
    if isinstance(value, tuple):
        return tuple(factor * entry for entry in value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SinkjaxError(f"{what}: times {name} needs a number to be multiplied, and the size has {value!r}")
    return max(1, round(factor * value)) if isinstance(value, int) else factor * value
