"""emergence/causal: edits of a sink and of what feeds it, on a model's checkpoints: when does the sink start to matter?"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from sinkjax.papers.emergence._onsets import ROW, checkpoints, onsets, order, over_steps, timeline
from sinkjax.papers.emergence._series import Kept, measure, training
from sinkjax.study import Lab, TrainingSpec
from sinkjax.tasks.language_model.task import PretrainTask


@dataclass(frozen=True, kw_only=True)
class Settings(Kept):
    seed: int = 3
    steps: int | None = 3000


def study(lab: Lab, s: Settings) -> None:
    """What hiding the first token does while a model learns."""
    stated = training(s)
    lab.train(ROW, TrainingSpec(ROW, stated, PretrainTask(stated).architecture, partial(measure, config=s)))
    lab.describe("order", "ours", order)
    lab.describe("onsets", "ours", onsets)
    lab.describe("steps", "ours", over_steps)
    lab.draw(timeline)
    lab.draw(checkpoints)
