"""Trainings of the trigger task: the settings that their studies share, and what differs between their models."""

from __future__ import annotations

from functools import partial

from sinkjax.papers.trigger._config import Changes, Trials, training
from sinkjax.papers.trigger._measure import measure
from sinkjax.study import Lab, TrainedModels, TrainingSpec
from sinkjax.tasks.trigger.task import model

NEVER = 1e-12  # a tolerance that no run meets, so that all steps are made
SOFTMAX, RELU = "softmax", "relu"
LABELS = {SOFTMAX: "softmax", RELU: "ReLU / max(i, 1)"}
NORMALISERS: dict[str, Changes] = {SOFTMAX: {"normalisers": ("softmax",)}, RELU: {"normalisers": ("relu-index",)}}


def train(lab: Lab, s: Trials, name: str, label: str, changes: Changes, edited: bool = False) -> TrainedModels:
    """Add models of the trigger task, and their measurements.

    Args:
        lab: The lab.
        s: The study's settings.
        name: Name of the training.
        label: Label for readers.
        changes: Fields of the training that differ from the settings (`sinkjax/tasks/trigger/config.py`).
        edited: Whether the loss under edits of BOS is measured too.
    """
    stated = training(s, changes)
    stated.data.check_position(s.trigger_position)
    return lab.train(name, TrainingSpec(name, stated, model(stated), partial(measure, s, edited)), label)
