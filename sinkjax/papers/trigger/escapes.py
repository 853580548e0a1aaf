"""trigger/escapes: layers with a gate, a sink logit or off by one, which need no sink on BOS: when do they use their escape?"""

from __future__ import annotations

from dataclasses import dataclass

from sinkjax.config_files.checks import at_least
from sinkjax.papers.trigger._config import Changes, Trials
from sinkjax.papers.trigger._figures import by_model
from sinkjax.papers.trigger._measure import NEVER, train
from sinkjax.papers.trigger._outcomes import *
from sinkjax.papers.trigger.assumptions import ESCAPES, OURS
from sinkjax.study import Lab, TrainedModels, versus

SMALL = "1e-4"  # the penalty of the claims
COSTS = ("0", "1e-5", SMALL, "1e-3")
LEARNED = ("gate", "sink-logit")  # escapes with parameters, which can start as one
VARIANTS: dict[str, tuple[str, Changes]] = {
    "plain": ("as in trigger/assumptions", {}),
    "std-0.1": ("initialised at 0.1", {"init_std": 0.1}),
    "std-0.3": ("initialised at 0.3", {"init_std": 0.3}),
    "start-4": ("escape starts at 4", {"escape": 4.0}),
    "start-8": ("escape starts at 8", {"escape": 8.0}),
    "rate-1e-4": ("learning rate 1e-4", {"learning_rates": (1e-4,)}),
    "rate-1e-2": ("learning rate 1e-2", {"learning_rates": (1e-2,)}),
}


@dataclass(frozen=True, kw_only=True)
class Settings(Trials):
    steps: int = 10_000
    evaluate_every: int = 100
    penalty_steps: int = 3000
    """training steps of each run with a penalty; no run stops before its last step"""

    def check(self) -> None:
        super().check()
        at_least(self, penalty_steps=1)


def study(lab: Lab, s: Settings) -> None:
    """Layers with an escape: when do they use it?"""
    to_the_end: Changes = {"steps": s.penalty_steps, "tolerance": NEVER}
    charged = {f"penalty-{cost}": (f"BOS costs {cost}", {"penalty": float(cost), **to_the_end}) for cost in COSTS}
    models: dict[str, TrainedModels] = {}
    shown: dict[str, dict[TrainedModels, str]] = {}
    for kind, (label, own) in {"softmax": ("softmax", {}), **ESCAPES}.items():
        variants = charged if kind == "softmax" else {**VARIANTS, **charged}
        shown[label] = {}
        for variant, (what, changes) in variants.items():
            if kind in LEARNED or "escape" not in changes:
                model = train(lab, s, f"{kind}-{variant}", f"{label}: {what}", {**own, **changes})
                models[model.name], shown[label][model] = model, what
    lab.summary(
        *(solves(s.solved), STEPS_TO_STOP, LOSS_LEFT, escaped()),
        *(whole_rows(), whole_rows("later tokens"), sinking_heads("part", s.sinks), BOS_WRITES),
    )

    sinks = whole_rows(solved=s.solved)
    for kind in ESCAPES:
        lab.claim(f"{kind}-penalty", OURS, versus(sinks, models[f"{kind}-penalty-0"], models[f"{kind}-penalty-{SMALL}"]))
    for kind in LEARNED:
        lab.claim(f"{kind}-start", OURS, versus(sinks, models[f"{kind}-plain"], models[f"{kind}-start-4"]))
    costly = versus(LOSS_LEFT, models[f"softmax-penalty-{SMALL}"], models["softmax-penalty-0"])
    lab.claim("softmax-penalty", "ours, on Ran-Milo 2026, Theorem 1", costly)

    caption = "Weight on BOS in the other rows, the weight that these rows leave to the escape, and the loss."
    unit = "mean over rows and sequences; loss left in %"
    lab.draw(by_model, "escapes", (whole_rows(), escaped(), LOSS_LEFT), shown, unit, caption)
