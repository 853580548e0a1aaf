"""trigger/sizes: one property of the single-head model made smaller or larger at a time, for softmax and for ReLU."""

from __future__ import annotations

from dataclasses import dataclass

from sinkjax.config_files.checks import above
from sinkjax.papers.trigger._config import Changes, Trials
from sinkjax.papers.trigger._figures import by_model
from sinkjax.papers.trigger._measure import LABELS, NORMALISERS, train
from sinkjax.papers.trigger._outcomes import *
from sinkjax.study import Lab


@dataclass(frozen=True, kw_only=True)
class Settings(Trials):
    seeds: int = 8
    steps: int = 20_000
    evaluate_every: int = 100
    deep_rate: float = 1e-4
    """learning rate of Adam for models with a residual stream, as in the paper"""

    def check(self) -> None:
        super().check()
        above(self, deep_rate=0)


def study(lab: Lab, s: Settings) -> None:
    """The size of the model."""
    deep: Changes = {"residual": True, "learning_rates": (s.deep_rate,)}
    variants: dict[str, tuple[str, Changes]] = {  # name -> label, and what differs from the base
        "base": ("1 layer, 1 head", {}),
        "1-layers": ("1 layer, residual", {"layers": 1, **deep}),
        "2-layers": ("2 layers, residual", {"layers": 2, **deep}),
        "4-layers": ("4 layers, residual", {"layers": 4, **deep}),
        "2-heads": ("2 heads", {"heads": 2}),
        "4-heads": ("4 heads", {"heads": 4}),
        "width-8": ("n = 8", {"width": 8}),
        "width-32": ("n = 32", {"width": 32}),
        "length-8": ("L = 8", {"length": 8}),
        "length-32": ("L = 32", {"length": 32}),
        "no-bos": ("no BOS", {"bos": "none"}),
        "scaled": ("scores / sqrt(n)", {"scaled": True}),
    }
    shown = {
        label: {
            train(lab, s, f"{name}-{variant}", f"{label}: {what}", {**NORMALISERS[name], **changes}): what
            for variant, (what, changes) in variants.items()
        }
        for name, label in LABELS.items()
    }
    lab.summary(
        *(STOPPED, STEPS_TO_STOP, solves(s.solved), LARGEST_ERROR, LOSS_LEFT),
        *(weight(), weight_share(), weight("later tokens"), whole_rows(), BOS_WRITES, weight(rows="trigger")),
    )

    caption = "Attention to BOS in the other rows, one property changed at a time. Shares of rows near 0 mean little."
    lab.draw(by_model, "sizes", (weight(), weight_share()), shown, "mean over layers, heads, rows and sequences", caption)
