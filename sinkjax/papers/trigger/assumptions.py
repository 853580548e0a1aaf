"""trigger/assumptions: one assumption of the theorem removed at a time; which models still sink, and which solve the task."""

from __future__ import annotations

from dataclasses import dataclass

from sinkjax.papers.trigger._config import Changes, Trials
from sinkjax.papers.trigger._figures import by_model, mean_maps
from sinkjax.papers.trigger._measure import train
from sinkjax.papers.trigger._outcomes import *
from sinkjax.study import Lab, versus

NO_BOS: Changes = {"bos": "none"}
ESCAPES: dict[str, tuple[str, Changes]] = {  # somewhere else to put weight
    "gate": ("gated heads", {"gate": True}),
    "sink-logit": ("learned sink logit", {"normalisers": ("sink-logit",)}),
    "off-by-one": ("softmax off by one", {"normalisers": ("off-by-one",)}),
}
NORMALISERS = {
    "clipped": "clipped softmax",
    "softpick": "softpick",
    "sigmoid": "sigmoid",
    "elu": "elu + 1",
    "relu-none": "ReLU",
    "relu-index": "ReLU / max(i, 1)",
    "relu-count": "ReLU / (i + 1)",
}
GROUPS: dict[str, dict[str, tuple[str, Changes]]] = {  # changed part -> name -> label, and the change
    "data": {
        "paper": ("softmax, as in the paper", {}),
        "no-bos": ("no BOS", NO_BOS),
        "noisy-bos": ("BOS with noise", {"bos": "noisy"}),
        "second-anchor": ("a second anchor", {"second_anchor": True}),
        "zero-token": ("a token of zeros", {"zero_token": True}),
        "zero-token-no-bos": ("a token of zeros, no BOS", {"zero_token": True, **NO_BOS}),
    },
    "somewhere else to put weight": {
        f"{name}{ending}": (f"{label}{without}", {**changes, **bos})
        for name, (label, changes) in ESCAPES.items()
        for ending, without, bos in (("", "", {}), ("-no-bos", ", no BOS", NO_BOS))
    },
    "normaliser": {name: (label, {"normalisers": (name,)}) for name, label in NORMALISERS.items()},
}
OURS = "ours, on Ran-Milo 2026, footnote 1"


@dataclass(frozen=True, kw_only=True)
class Settings(Trials):
    steps: int = 10_000
    evaluate_every: int = 100


def study(lab: Lab, s: Settings) -> None:
    """One assumption of the theorem removed at a time."""
    groups = {}
    for group, described in GROUPS.items():
        groups[group] = {train(lab, s, name, label, changes): label for name, (label, changes) in described.items()}
    models = {model.name: model for group in groups.values() for model in group}
    lab.summary(
        *(solves(s.solved), sinking_heads("weight", s.sinks), sinking_heads("part", s.sinks), sinking_heads("written", s.sinks)),
        *(STOPPED, STEPS_TO_STOP, LOSS_LEFT, LARGEST_ERROR),
        *(weight(), weight_share(), weight("later tokens"), whole_rows(), BOS_WRITES),
        *(weight(rows="trigger"), weight("later tokens", "trigger")),
    )

    paper, no_bos, relu = models["paper"], models["no-bos"], models["relu-index"]
    sinking, source = versus(whole_rows(solved=s.solved), paper, relu), "ours, on Ran-Milo 2026, Theorem"
    lab.claim("softmax", f"{source}s 1 and 3", sinking)
    lab.claim("needs-bos", f"{source} 1", versus(LOSS_LEFT, no_bos, paper))
    for name in ESCAPES:
        lab.claim(f"{name}-solves", OURS, versus(LOSS_LEFT, no_bos, models[f"{name}-no-bos"], whole=paper))
    for name in ESCAPES:
        lab.claim(f"{name}-sinks", OURS, versus(whole_rows(), paper, models[name]))
    lab.claim("divisor", "ours, on Ran-Milo 2026, its code for ReLU", versus(LOSS_LEFT, models["relu-none"], relu))

    caption = "Attention of the other rows; without BOS the first token is shown. Shares of rows that are nearly 0 mean little."
    masses, unit = (weight(), weight_share(), weight("later tokens")), "mean over rows and sequences"
    lab.draw(by_model, "attention", masses, groups, unit, caption)
    unit = "held-out loss, % of that of a model that writes nothing (log scale)"
    lab.draw(by_model, "loss", (LOSS_LEFT,), groups, unit, "Loss left after training, by model.", least=1e-5)
    lab.draw(mean_maps, [*models.values()])
