"""Trainings of the trigger task as words: the settings that their studies share, and what differs between their models."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from sinkjax.config_files.checks import above, at_least, each_once, share
from sinkjax.errors import SinkjaxError
from sinkjax.studies.config import Trains
from sinkjax.studies.scope import Scope
from sinkjax.studies.study import TrainingSpec
from sinkjax.studies.vocabulary import Training
from sinkjax.tasks.trigger.config import CappedTraining, TriggerTraining

Changes = dict[str, Any]  # fields of a training that differ
SMALLEST = 4  # coordinates of a token: two flags, noise and the bias channel
NEVER = 1e-12  # a tolerance that no run meets, so that all steps are made
SOFTMAX, RELU = "softmax", "relu"
LABELS = {SOFTMAX: "softmax", RELU: "ReLU / max(i, 1)"}
NORMALISERS: dict[str, Changes] = {SOFTMAX: {"normalisers": ("softmax",)}, RELU: {"normalisers": ("relu-index",)}}


@dataclass(frozen=True, kw_only=True)
class Trials(Trains):
    """What every study of the trigger task states; the defaults are the paper's."""

    steps: int = 50_000
    """training steps of a run, at most"""
    width: int = 16
    """coordinates of a token, n"""
    length: int = 16
    """tokens of a sequence, BOS included, L"""
    batch: int = 128
    """sequences of a step, all of them fresh"""
    rate: float = 1e-3
    """learning rate of Adam"""
    tolerance: float = 5e-3
    """a run is done when every output on a batch is closer than this to its target"""
    evaluate_every: int = 50
    """steps between two points of the learning curves"""
    sequences: int = 10_000
    """held-out sequences for loss and attention, with triggers drawn as in training"""
    shared_data: bool = False
    """the same data for all runs of a model: intervals are then over initialisations only"""
    map_sequences: int = 1000
    """held-out sequences for maps and edits"""
    trigger_position: int = 7
    """position of their trigger, counted from 0 (the paper's position 8)"""
    moves: tuple[int, ...] = (4, 12)
    """positions with which BOS is swapped, counted from 0"""
    sinks: float = 0.5
    """smallest mean weight on BOS, in rows other than BOS's and the trigger's, of a head that is counted as sinking"""
    solved: float = 1.0
    """a run has solved the task when its loss is below this percentage of that of a model that writes nothing"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, steps=1, width=SMALLEST, length=4, batch=1, evaluate_every=1, sequences=1, map_sequences=2)
        above(self, rate=0, tolerance=0, solved=0)
        share(self, "sinks")
        each_once(self, "moves")
        if not 2 <= self.trigger_position < self.length:
            raise SinkjaxError(f"trigger_position must lie from 2 to {self.length - 1}, not {self.trigger_position}")
        for place in self.moves:
            if not 0 < place < self.length or place == self.trigger_position:
                raise SinkjaxError(f"moves must lie from 1 to {self.length - 1} and off the trigger, but contains {place}")


def training(config: Trials, changes: Changes) -> TriggerTraining:
    """The training that a study states, with some fields changed."""
    shared = ("seed", "seeds", "steps", "batch", "tolerance", "width", "length", "dtype", "shared_data")
    stated = {name: getattr(config, name) for name in shared}
    stated |= {"learning_rates": (config.rate,), "eval_every": config.evaluate_every}
    return TriggerTraining(**{**stated, **changes})


@Training.define(config=Trials)
def trigger(scope: Scope, name: str, label: str, changes: Any = (), edited: bool = False) -> TrainingSpec:
    """Models of the trigger task, and what is measured on them.

    Args:
        scope: Of the study.
        name: Of the training.
        label: For readers.
        changes: Fields of the training that differ from the paper's (`sinkjax/tasks/trigger/config.py`), or settings.
        edited: Whether the loss under edits of BOS is measured too.
    """
    from sinkjax.papers.trigger._measure import measure  # imports JAX
    from sinkjax.tasks.trigger.task import model

    stated = training(scope.config, dict(scope.get(changes)))
    stated.data.check_position(scope.config.trigger_position)
    return TrainingSpec(name, stated, model(stated), partial(measure, scope.config, edited))


@Training.define(config=Trials)
def with_bounds(scope: Scope, name: str, label: str, caps: Any, shifts: Any, runs: Any = None, steps: Any = None) -> TrainingSpec:
    """Layers that are free to sink, or (with `runs`) layers whose BOS mass is held while they learn.

    Args:
        scope: Of the study.
        name: Of the training.
        label: For readers.
        caps: Masses on BOS that are held in the rows other than BOS's and the trigger's.
        shifts: Numbers that are added to BOS's logit in those rows of the trained layers.
        runs: Seeds of each mass that is held in training; None: the layers are free.
        steps: Steps of each of these runs, all of which are made.
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
