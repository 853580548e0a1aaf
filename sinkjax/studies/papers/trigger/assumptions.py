"""trigger/assumptions: one assumption of the theorem removed at a time; which models still sink, and which solve the task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkjax.studies as st
from sinkjax.studies.papers.trigger import _lab as lab
from sinkjax.studies.papers.trigger._figures import by_model, many_maps
from sinkjax.studies.papers.trigger._lab import Judged, Model
from sinkjax.studies.papers.trigger._study import study

DATA, PLACES, NORMALISERS = "data", "somewhere else to put weight", "normaliser"
GROUPS = {  # what is changed -> models with this change
    DATA: (
        Model("paper", "softmax, as in the paper"),
        Model("no-bos", "no BOS", {"bos": "none"}),
        Model("noisy-bos", "BOS with noise", {"bos": "noisy"}),
        Model("second-anchor", "a second anchor", {"second_anchor": True}),
        Model("zero-token", "a token of zeros", {"zero_token": True}),
        Model("zero-token-no-bos", "a token of zeros, no BOS", {"zero_token": True, "bos": "none"}),
    ),
    PLACES: tuple(
        Model(f"{name}{ending}", f"{label}{without}", {**changes, **bos})
        for name, label, changes in (
            ("gate", "gated heads", {"gate": True}),
            ("sink-logit", "learned sink logit", {"normalisers": ("sink-logit",)}),
            ("off-by-one", "softmax off by one", {"normalisers": ("off-by-one",)}),
        )
        for ending, without, bos in (("", "", {}), ("-no-bos", ", no BOS", {"bos": "none"}))
    ),
    NORMALISERS: tuple(
        Model(name, label, {"normalisers": (name,)})
        for name, label in {
            "clipped": "clipped softmax",
            "softpick": "softpick",
            "sigmoid": "sigmoid",
            "elu": "elu + 1",
            "relu-none": "ReLU",
            "relu-index": "ReLU / max(i, 1)",
            "relu-count": "ReLU / (i + 1)",
        }.items()
    ),
}
MODELS = tuple(model for group in GROUPS.values() for model in group)
LABELS = lab.labels_of(MODELS)
SOLVING, SINKING, SHARING = "runs that solve the task (%)", "runs that sink, by weight (%)", "runs that sink, by share (%)"
FILLING, WRITING = "runs that sink, by weight in whole rows (%)", "runs that sink, by what BOS writes (%)"
MAJORITY = 50.0  # % of the runs
JUDGED = {  # measure -> the one that it is decided by, and for which values of this one a run counts
    SOLVING: (lab.LEFT, lambda config, left: left < config.solved),
    SINKING: (lab.BOS, lambda config, weight: weight >= config.sinks),
    SHARING: (lab.BOS_SHARE, lambda config, share: share >= config.sinks),
    FILLING: (lab.PART, lambda config, part: part >= config.sinks),
    WRITING: (lab.WRITTEN, lambda config, written: written >= config.sinks),
}
MEASURES = lab.all_but(lab.LOSS, lab.BOS_TRIGGER_SHARE, lab.UNEVEN, lab.PART_ELSEWHERE)


@dataclass(frozen=True, kw_only=True)
class Assumptions(Judged):
    """One layer and one head, with one assumption of the theorem removed at a time: which still sink, which solve the task."""

    steps: int = 10_000


def judged(results: st.Results, name: str, measure: str) -> NDArray:
    """100 for each run that counts, 0 for one that does not, NaN for one that diverged: float[run]."""
    decides, counts = JUDGED[measure]
    each = lab.values(results[name], decides)
    return np.where(np.isfinite(each), 100.0 * counts(results.config, each), np.nan)


def rows(results: st.Results) -> list[st.Row]:
    shares = [
        st.Row(label, lab.MODELS, measure, results.interval(judged(results, name, measure)))
        for name, label in LABELS.items()
        for measure in JUDGED
    ]
    return shares + lab.rows(results, LABELS, MEASURES)


MOST, FEW = "more", "less"  # than half of the runs of a model
SCALE_FREE = (FILLING, WRITING)  # by which attention that is not normalised is judged
CLAIMS = (  # statement, source, how many runs, what they do, in which models, the model that has to solve the task
    ("Most softmax layers sink on BOS.", "Ran-Milo 2026, Theorem 1", MOST, (SINKING,), ["paper"], "paper"),
    ("Without BOS most softmax layers do not solve the task.", "", FEW, (SOLVING,), ["no-bos"], ""),
    (
        "Without BOS most gated softmax layers, which the theorem leaves out, solve the task.",
        "",
        MOST,
        (SOLVING,),
        ["gate-no-bos"],
        "",
    ),
    (
        "Without BOS most softmax layers with a sink logit solve the task, and most with softmax off by one.",
        "",
        MOST,
        (SOLVING,),
        ["sink-logit-no-bos", "off-by-one-no-bos"],
        "",
    ),
    (
        "With a BOS most gated softmax layers have no sink on it, nor most with a sink logit, nor most with softmax off by one.",
        "",
        FEW,
        (SINKING,),
        ["gate", "sink-logit", "off-by-one"],
        "",
    ),
    ("Most layers of ReLU / max(i, 1) solve the task.", "Ran-Milo 2026, Theorem 3", MOST, (SOLVING,), ["relu-index"], ""),
    (
        "Most layers of ReLU / max(i, 1) have no sink on BOS.",
        "Ran-Milo 2026, Theorem 3",
        FEW,
        SCALE_FREE,
        ["relu-index"],
        "relu-index",
    ),
    (
        "Most layers of ReLU, and most of ReLU / (i + 1), have no sink on BOS, whether they solve the task or not.",
        "",
        FEW,
        SCALE_FREE,
        ["relu-none", "relu-count"],
        "",
    ),
    ("Most layers of ReLU without a divisor do not solve the task.", "", FEW, (SOLVING,), ["relu-none"], ""),
)


def claims(config: Assumptions, architecture: Any) -> Iterator[st.Claim]:
    def share(name: str, measure: str) -> st.Quantity:
        return st.listed(LABELS[name], measure, f"{LABELS[name]}: {measure}")

    for statement, source, runs, measures, names, solver in CLAIMS:
        side = st.above if runs == MOST else st.below
        rules = (side(share(name, measure), MAJORITY) for name in names for measure in measures)
        solves = st.above(share(solver, SOLVING), MAJORITY) if solver else None
        yield st.Claim(statement, st.all_of(*rules), given=solves, source=source)


def figures(config: Assumptions, architecture: Any) -> Iterator[st.Figure]:
    kinds = {group: {model.label: model.label for model in models} for group, models in GROUPS.items()}
    yield partial(
        by_model,
        name="attention",
        shown={
            "weight on BOS,\nother rows": lab.BOS,
            "share of BOS,\nother rows": lab.BOS_SHARE,
            "weight elsewhere,\nother rows": lab.ELSEWHERE,
        },
        kinds=kinds,
        xlabel="mean over rows and sequences",
        caption="Attention of the rows of all tokens but BOS and the trigger, by model; without BOS the first token is shown"
        " instead. Shares of rows that are nearly 0 mean little.",
    )
    yield partial(
        by_model,
        name="loss",
        shown={"loss left": lab.LEFT},
        kinds=kinds,
        xlabel="held-out loss, % of that of a model that writes nothing (log scale)",
        caption="Loss left after training, by model.",
        least=1e-5,
    )
    yield partial(many_maps, labels=LABELS)


STUDY = study(
    lambda config: MODELS,
    name="trigger/assumptions",
    config=Assumptions,
    title="Which assumption carries the sink",
    question="""Ran-Milo 2026 proves a sink for a softmax layer with a BOS that differs from all other tokens, and notes (footnote
        1) that gated attention is not covered: which assumption is responsible for the sink?""",
    rows=rows,
    claims=claims,
    figures=figures,
    notes=lambda config: [
        f"""A run sinks if the mean weight on BOS (or share of it) in the rows of all tokens but BOS and the trigger is at least
        {config.sinks:g}. It solves the task if its held-out loss is below {config.solved:g} % of that of a model that writes
        nothing. Claims are about the majority of the runs; by a sign test, 8 of 8 give p = 0.008.""",
        """Without BOS the first token is like any other; it is still called 'BOS', and is part of the mean. All models have one
        layer and one head and are trained alike.""",
    ],
)
