"""emergence/causal: edits of a sink and of what feeds it, on a model's checkpoints: when does the sink start to matter?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import tyro

from sinkjax.config_files.checks import at_least, share
from sinkjax.lab import Lab
from sinkjax.papers.emergence._onsets import ROW, checkpoints, onsets, order, over_steps, timeline
from sinkjax.papers.emergence._series import measure, training
from sinkjax.studies.config import Trains
from sinkjax.studies.study import TrainingSpec
from sinkjax.tasks.language_model.task import PretrainTask


@dataclass(frozen=True, kw_only=True)
class Settings(Trains):
    """What hiding the first token does while a model learns: edits on checkpoints of a training from scratch."""

    seeds: int = 4
    """runs, each with an initialisation and an order of the data of its own"""
    seed: int = 3
    size: Literal["mini", "340k", "60m", "1b", "152m"] = "mini"
    """size of model and training, as for the studies of pretraining"""
    steps: int | None = 3000
    """training steps of a run; if none, the size's"""
    kept: int | tuple[int, ...] = 24
    """models of each run that are kept and measured: a list of steps, or how many, log-spaced"""
    text: str | None = None
    """training text: "packaged", "chats", a file, a folder or the hub id of a data set; if none, the size's"""
    prompts: int = 64
    """held-out blocks that are measured, at most as many as the training holds out"""
    length: int = 64
    """tokens of each that are measured, starting with its first"""
    eps: float = 0.3
    """attention that a key must receive on average to be a head's sink (Gu et al. 2025)"""
    changes: tyro.conf.Suppress[Mapping[str, object]] = field(default_factory=dict)
    """fields of the training that override the size's"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, steps=1, prompts=1, length=3)
        share(self, "eps")


def study(lab: Lab, s: Settings) -> None:
    """What hiding the first token does while a model learns."""
    stated = training(s)
    lab.train(ROW, TrainingSpec(ROW, stated, PretrainTask(stated).architecture, partial(measure, config=s)))
    lab.describe("order", "ours", order)
    lab.describe("onsets", "ours", onsets)
    lab.describe("steps", "ours", over_steps)
    lab.draw(timeline)
    lab.draw(checkpoints)
