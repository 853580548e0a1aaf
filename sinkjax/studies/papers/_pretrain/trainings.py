"""From a row of a study to the training that it is."""

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

OVERRIDES = ("steps", "text", "micro_batch", "mesh")  # fields of a study that stand for those of its size


def trainings(config: Ablation) -> tuple[TrainingSpec, ...]:
    """A training for each row that there is at this size. Errors: one whose fields do not fit, by its name."""
    return tuple(training_spec(config, spec) for spec in config.here)


def training_spec(config: Ablation, spec: RowSpec) -> TrainingSpec:
    """The training of one row."""
    stated = training(config, spec)
    try:
        task = cast(ModelTask, registry.task(stated))
    except SinkjaxError as error:
        raise SinkjaxError(f"{config.name}, row {spec.name}: {error}") from None
    wanted = not config.only or spec.name in config.only
    return TrainingSpec(spec.name, stated, task.model(stated_variant(stated)), measure, so_far, wanted)


def training(config: Ablation, spec: RowSpec) -> Training:
    """What is trained: the fields of the size, of the study, and of the row. Errors: what does not fit, by the row's name."""
    what = f"{config.name}, row {spec.name}"
    size = config.scale
    stated: dict[str, Any] = {"seed": config.seed, "seeds": config.seeds, "dtype": config.dtype}
    stated |= {name: value for name in OVERRIDES if (value := getattr(config, name)) is not None}
    values = {**size.fields, **stated, **config.changes}
    cls = registry.config_type(size.task)
    base = documents.build(cls, values, what)
    scaled = {name: _times(base, name, factor, what) for name, factor in spec.times.items()}
    found = documents.build(cls, {**values, **scaled, **spec.changes}, what)
    if len(found.learning_rates) != 1:
        raise SinkjaxError(f"{what}: a row has one learning rate, not {len(found.learning_rates)}")
    return found


def stated_variant(training: Training) -> str:
    """The one variant of a row's training."""
    (variant,) = registry.task(training).variants
    return variant


def _times(base: Any, name: str, factor: float, what: str) -> Any:
    """A field of the size times a factor, whole and at least 1 if the field is whole; of a window not stated, the context."""
    value = getattr(base, name, None)
    if name == "window" and value is None:
        value = base.context
    if isinstance(value, tuple):
        return tuple(factor * entry for entry in value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SinkjaxError(f"{what}: times {name} needs a number to be multiplied, and the size has {value!r}")
    return max(1, round(factor * value)) if isinstance(value, int) else factor * value
