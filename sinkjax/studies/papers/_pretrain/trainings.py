"""The trainings of the rows of a study."""

from __future__ import annotations

from typing import Any, cast

from sinkjax.config_files import documents
from sinkjax.errors import SinkjaxError
from sinkjax.studies.papers._pretrain.config import Ablation, RowSpec
from sinkjax.studies.papers._pretrain.measure import measure, so_far
from sinkjax.studies.study import TrainingSpec
from sinkjax.tasks import registry
from sinkjax.train.config import Training
from sinkjax.train.task import ModelTask

OVERRIDES = ("steps", "text", "micro_batch", "mesh")  # fields of a study that replace those of its size


def trainings(config: Ablation) -> tuple[TrainingSpec, ...]:
    """A training for each row of this size. Errors: fields that do not fit, with the name of the row."""
    return tuple(training_spec(config, spec) for spec in config.here)


def training_spec(config: Ablation, spec: RowSpec) -> TrainingSpec:
    stated = training(config, spec)
    try:
        task = registry.task(stated)
    except SinkjaxError as error:
        raise SinkjaxError(f"{config.name}, row {spec.name}: {error}") from None
    (variant,) = task.variants
    wanted = not config.only or spec.name in config.only
    return TrainingSpec(spec.name, stated, cast(ModelTask, task).model(variant), measure, so_far, wanted)


def training(config: Ablation, spec: RowSpec) -> Training:
    """The fields of the size, of the study and of the row. Errors: as for `trainings`."""
    what = f"{config.name}, row {spec.name}"
    stated: dict[str, Any] = {"seed": config.seed, "seeds": config.seeds, "dtype": config.dtype}
    stated |= {name: value for name in OVERRIDES if (value := getattr(config, name)) is not None}
    values = {**config.scale.fields, **stated, **config.changes}
    cls = registry.config_type(config.scale.task)
    base = documents.build(cls, values, what)
    scaled = {name: _times(base, name, factor, what) for name, factor in spec.times.items()}
    found = documents.build(cls, {**values, **scaled, **spec.changes}, what)
    if len(found.learning_rates) != 1:
        raise SinkjaxError(f"{what}: a row has one learning rate, not {len(found.learning_rates)}")
    return found


def _times(base: Any, name: str, factor: float, what: str) -> Any:
    """A field of the size times a factor, rounded and at least 1 if it is an integer; for a window not stated, the context."""
    value = getattr(base, name, None)
    if name == "window" and value is None:
        value = base.context
    if isinstance(value, tuple):
        return tuple(factor * entry for entry in value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SinkjaxError(f"{what}: times {name} needs a number to be multiplied, and the size has {value!r}")
    return max(1, round(factor * value)) if isinstance(value, int) else factor * value
