"""trigger/one-layer: softmax sinks on BOS and ReLU does not, over many seeds, and the effects of edits of BOS."""

from __future__ import annotations

from dataclasses import dataclass

from sinkjax.papers.trigger._config import Trials
from sinkjax.papers.trigger._figures import edited_losses, learning, losses_by_edit, mean_maps, neutral_edit
from sinkjax.papers.trigger._measure import LABELS, NORMALISERS, train
from sinkjax.papers.trigger._outcomes import *
from sinkjax.study import Lab, versus


@dataclass(frozen=True, kw_only=True)
class Settings(Trials):
    seeds: int = 64


def study(lab: Lab, s: Settings) -> None:
    """One layer, one head: softmax and ReLU."""
    models = [train(lab, s, name, label, NORMALISERS[name], edited=True) for name, label in LABELS.items()]
    softmax, relu = models
    lab.summary(
        *(STOPPED, STEPS_TO_STOP, solves(s.solved), TASK_LOSS, LARGEST_ERROR, LOSS_LEFT),
        *(weight(), weight_share(), weight("later tokens"), whole_rows(), whole_rows("later tokens"), BOS_WRITES),
        *(weight(rows="trigger"), weight_share(rows="trigger"), weight("later tokens", "trigger"), UNEVENNESS),
        *(trigger_row(s.trigger_position), trigger_row(s.trigger_position, "each token after it"), SPREAD_OF_WEIGHTS),
    )
    solving = versus(whole_rows(solved=s.solved), softmax, relu)
    every_run = [versus(whole_rows(), softmax), versus(whole_rows(), relu)]
    lab.claim("softmax", "Ran-Milo 2026, Theorems 1 and 3, Fig. 3", solving, beside=every_run)
    lab.describe("edits", "ours", lambda read: edited_losses(read, models))
    lab.identity("neutral", "", neutral_edit(models))

    for figure in (mean_maps, learning, losses_by_edit):
        lab.draw(figure, models)
