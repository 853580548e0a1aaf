"""trigger/heads: several layers and heads with a residual stream; how many heads sink, and which, for each seed."""

from __future__ import annotations

from dataclasses import dataclass

from sinkjax.papers.trigger._config import Trials
from sinkjax.papers.trigger._figures import (
    bos_by_head,
    counted_heads,
    edited_losses,
    head_maps,
    learning,
    losses_by_edit,
    neutral_edit,
)
from sinkjax.papers.trigger._measure import LABELS, NORMALISERS, train
from sinkjax.papers.trigger._outcomes import *
from sinkjax.study import Lab, versus

SIZES = {"2x2": (2, 2), "4x4": (4, 4)}  # layers and heads
FIGURES = {"2x2": "Figs. 4, 5", "4x4": "Figs. 6 to 8"}  # of the paper


@dataclass(frozen=True, kw_only=True)
class Settings(Trials):
    seeds: int = 8
    rate: float = 1e-4
    evaluate_every: int = 500


def study(lab: Lab, s: Settings) -> None:
    """Several layers and heads."""
    pairs = {}
    for size, (depth, heads) in SIZES.items():
        shape = {"layers": depth, "heads": heads, "residual": True}
        changes = {name: {**shape, **NORMALISERS[name]} for name in LABELS}
        pairs[size] = [train(lab, s, f"{name}-{size}", f"{LABELS[name]} {size}", changes[name], edited=True) for name in LABELS]
    models = [model for pair in pairs.values() for model in pair]
    lab.summary(
        *(STOPPED, STEPS_TO_STOP, solves(s.solved), TASK_LOSS, LARGEST_ERROR, LOSS_LEFT),
        *(weight(), weight_share(), weight("later tokens"), whole_rows(), BOS_WRITES),
        *(weight(rows="trigger"), weight_share(rows="trigger"), strongest_head()),
        *(sinking_heads(kind, s.sinks) for kind in ("share", "weight", "part", "written")),
    )
    for size, (softmax, relu) in pairs.items():
        strongest = versus(strongest_head(solved=s.solved), softmax, relu)
        beside = [versus(sinking_heads("part", s.sinks, s.solved), softmax, relu), versus(strongest_head(), relu)]
        lab.claim(f"strongest-{size}", f"Ran-Milo 2026, Theorem 2, {FIGURES[size]}", strongest, beside=beside)
    lab.describe("edits", "ours", lambda read: edited_losses(read, models))
    lab.identity("neutral", "", neutral_edit(models))

    lab.draw(counted_heads, pairs)
    lab.draw(bos_by_head, models)
    for model in models:
        lab.draw(head_maps, model)
    lab.draw(learning, models)
    lab.draw(losses_by_edit, models)
