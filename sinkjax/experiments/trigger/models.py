"""Which models the trigger lab trains: each one the paper's, but for what its name says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sinkjax.experiments.base import Lesson
from sinkjax.experiments.trigger.config import Lab, Trials
from sinkjax.experiments.trigger.measure import measure
from sinkjax.tasks.trigger.config import TriggerTraining
from sinkjax.tasks.trigger.task import model

SOFTMAX, RELU = "softmax", "relu"
WORDS = {SOFTMAX: "softmax", RELU: "ReLU / max(i, 1)"}
NORMALISERS: dict[str, dict[str, Any]] = {SOFTMAX: {"normalisers": ("softmax",)}, RELU: {"normalisers": ("relu-index",)}}


@dataclass(frozen=True)
class Model:
    """A model of a study. name: of its training and store. label: in words. changes: fields of its training, but for those that
    the study states for all."""

    name: str
    label: str
    changes: Mapping[str, Any] = field(default_factory=dict)


def training(config: Trials, changes: Mapping[str, Any]) -> TriggerTraining:
    """A training as a study states it, with some fields changed. Errors: what does not fit, by its name."""
    stated = {
        name: getattr(config, name) for name in ("seed", "seeds", "steps", "batch", "tolerance", "width", "length", "dtype")
    }
    stated |= {"learning_rates": (config.rate,), "eval_every": config.evaluate_every, "shared_data": config.shared_data}
    return TriggerTraining(**{**stated, **changes})


def lesson(config: Lab, form: Model, moves: Sequence[int] = ()) -> Lesson:
    """The training of one model and what is measured on it; with `moves`, under edits too (`measure.edits`)."""
    stated = training(config, form.changes)
    stated.data.check_position(config.trigger_position)
    return Lesson(form.name, stated, model(stated), partial(measure, config, tuple(moves)))
