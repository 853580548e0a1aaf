"""trigger/escapes: layers with a gate, a sink logit or off by one, which need no sink on BOS: when do they use their escape?"""

from sinkjax.papers.trigger._config import Changes
from sinkjax.papers.trigger._figures import by_model
from sinkjax.papers.trigger._outcomes import *
from sinkjax.papers.trigger._task import NEVER, trigger
from sinkjax.papers.trigger.assumptions import ESCAPES, OURS
from sinkjax.studies.vocabulary import *

SMALL = "1e-4"  # the penalty of the claims
LEARNED = ("gate", "sink-logit")  # escapes with parameters, which can start as one
PENALTIES: dict[str, tuple[str, Changes]] = {
    f"penalty-{cost}": (f"BOS costs {cost}", {"penalty": float(cost), "steps": F.penalty_steps, "tolerance": NEVER})
    for cost in ("0", "1e-5", SMALL, "1e-3")
}
VARIANTS: dict[str, tuple[str, Changes]] = {
    "plain": ("as in trigger/assumptions", {}),
    "std-0.1": ("initialised at 0.1", {"init_std": 0.1}),
    "std-0.3": ("initialised at 0.3", {"init_std": 0.3}),
    "start-4": ("escape starts at 4", {"escape": 4.0}),
    "start-8": ("escape starts at 8", {"escape": 8.0}),
    "rate-1e-4": ("learning rate 1e-4", {"learning_rates": (1e-4,)}),
    "rate-1e-2": ("learning rate 1e-2", {"learning_rates": (1e-2,)}),
    **PENALTIES,
}
MODELS: dict[str, tuple[str, Changes]] = {"softmax": ("softmax", {}), **ESCAPES}
CELLS: dict[str, dict[str, tuple[str, Changes]]] = {  # model -> name -> label of the variant, and all changes
    model: {
        f"{model}-{variant}": (what, {**own, **changes})
        for variant, (what, changes) in (PENALTIES if model == "softmax" else VARIANTS).items()
        if model in LEARNED or "escape" not in changes
    }
    for model, (_, own) in MODELS.items()
}

SINKS, THEOREM = whole_rows(solved=F.solved), "ours, on Ran-Milo 2026, Theorem 1"

STUDY = Study(
    name="trigger/escapes",
    settings={
        "steps": 10_000,
        "evaluate_every": 100,
        "penalty_steps": setting(3000, "training steps of each run with a penalty; no run stops before its last step"),
    },
    trainings={
        name: trigger(f"{MODELS[model][0]}: {what}", changes)
        for model, cells in CELLS.items()
        for name, (what, changes) in cells.items()
    },
    measures=(
        *(solves(F.solved), steps_to_stop(), loss_left(), escaped()),
        *(whole_rows(), whole_rows("later tokens"), sinking_heads("part", F.sinks), bos_writes()),
    ),
    claims={
        **{f"{name}-penalty": Claim(versus(SINKS, f"{name}-penalty-0", f"{name}-penalty-{SMALL}"), OURS) for name in ESCAPES},
        **{f"{name}-start": Claim(versus(SINKS, f"{name}-plain", f"{name}-start-4"), OURS) for name in LEARNED},
        "softmax-penalty": Claim(versus(loss_left(), f"softmax-penalty-{SMALL}", "softmax-penalty-0"), THEOREM),
    },
    figures=(
        by_model(
            "escapes",
            (whole_rows(), escaped(), loss_left()),
            {MODELS[model][0]: {name: what for name, (what, _) in cells.items()} for model, cells in CELLS.items()},
            "mean over rows and sequences; loss left in %",
            "Weight on BOS in the rows of all tokens but BOS and the trigger, the weight that these rows leave to the escape, and"
            " the loss.",
        ),
    ),
)
