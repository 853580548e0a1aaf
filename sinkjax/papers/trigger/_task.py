"""Trainings of the trigger task as words: the settings that their studies share, and what differs between their models."""

from __future__ import annotations

from functools import partial

from sinkjax.errors import SinkjaxError
from sinkjax.papers.trigger._config import Changes, Trials, training
from sinkjax.studies.scope import Scope
from sinkjax.studies.study import TrainingSpec
from sinkjax.studies.vocabulary import Training
from sinkjax.tasks.trigger.config import CappedTraining

NEVER = 1e-12  # a tolerance that no run meets, so that all steps are made
SOFTMAX, RELU = "softmax", "relu"
LABELS = {SOFTMAX: "softmax", RELU: "ReLU / max(i, 1)"}
NORMALISERS: dict[str, Changes] = {SOFTMAX: {"normalisers": ("softmax",)}, RELU: {"normalisers": ("relu-index",)}}


@Training.define(config=Trials)
def trigger(scope: Scope, name: str, label: str, changes: object = (), edited: bool = False) -> TrainingSpec:
    """Models of the trigger task, and their measurements.

    Args:
        scope: The study's scope.
        name: Name of the training.
        label: Label for readers.
        changes: Fields of the training that differ from the paper's (`sinkjax/tasks/trigger/config.py`), or settings.
        edited: Whether the loss under edits of BOS is measured too.
    """
    from sinkjax.papers.trigger._measure import measure  # imports JAX
    from sinkjax.tasks.trigger.task import model

    stated = training(scope.config, dict(scope.get(changes)))
    stated.data.check_position(scope.config.trigger_position)
    return TrainingSpec(name, stated, model(stated), partial(measure, scope.config, edited))


@Training.define(config=Trials)
def with_bounds(
    scope: Scope, name: str, label: str, caps: object, shifts: object, runs: object = None, steps: object = None
) -> TrainingSpec:
    """Layers that are free to sink, or (with `runs`) layers whose BOS mass is held while they learn.

    Args:
        scope: The study's scope.
        name: Name of the training.
        label: Label for readers.
        caps: Masses on BOS that are held in the rows other than BOS's and the trigger's.
        shifts: Numbers that are added to BOS's logit in those rows of the trained layers.
        runs: Seeds of each mass that is held in training; None: the layers are free.
        steps: Steps of each of these runs; all of them are made.
    """
    from sinkjax.papers.trigger import _bound_measure as measure  # imports JAX
    from sinkjax.tasks.trigger.task import model

    masses, added, count = (scope.get(entry) for entry in (caps, shifts, runs))
    if list(masses) != sorted(set(masses)) or not 0 <= masses[0] <= masses[-1] <= 1:
        raise SinkjaxError(f"caps must rise from 0 to 1 at most, not {list(masses)}")
    if count is None:
        free = training(scope.config, {})
        return TrainingSpec(name, free, model(free), partial(measure.free, scope.config, masses, added))
    fixed = training(scope.config, {"seeds": count, "steps": scope.get(steps), "tolerance": NEVER})
    capped = CappedTraining(**vars(fixed), caps=masses)
    return TrainingSpec(name, capped, model(capped), partial(measure.capped, scope.config, masses, count))
