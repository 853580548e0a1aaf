"""trigger/assumptions: one assumption of the theorem at a time removed; which models still sink, and which solve the task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import intervals
from sinkjax.analysis.intervals import Interval
from sinkjax.experiments.base import Claim, Drawing, Lesson, Section
from sinkjax.experiments.summary import LEVEL, Row
from sinkjax.experiments.trigger import models, summary
from sinkjax.experiments.trigger.config import Assumptions
from sinkjax.experiments.trigger.figures import many_maps
from sinkjax.experiments.trigger.models import Model
from sinkjax.experiments.trigger.words import count_of, notes, provenance
from sinkjax.experiments.words import verdict
from sinkjax.report.figures.points import Point, points
from sinkjax.report.table import interval

if TYPE_CHECKING:
    import xarray

DATA, PLACES, NORMALISERS = "data", "somewhere else to put weight", "normaliser"
GROUPS = {  # what is changed -> the models in which it is
    DATA: (
        Model("paper", "softmax, as in the paper"),
        Model("no-bos", "no BOS", {"bos": "none"}),
        Model("noisy-bos", "BOS with noise", {"bos": "noisy"}),
        Model("second-anchor", "a second anchor", {"second_anchor": True}),
        Model("zero-token", "a token of zeros", {"zero_token": True}),
        Model("zero-token-no-bos", "a token of zeros, no BOS", {"zero_token": True, "bos": "none"}),
    ),
    PLACES: (
        Model("gate", "gated heads", {"gate": True}),
        Model("gate-no-bos", "gated heads, no BOS", {"gate": True, "bos": "none"}),
        Model("sink-logit", "learned sink logit", {"normalisers": ("sink-logit",)}),
        Model("sink-logit-no-bos", "learned sink logit, no BOS", {"normalisers": ("sink-logit",), "bos": "none"}),
        Model("off-by-one", "softmax off by one", {"normalisers": ("off-by-one",)}),
        Model("off-by-one-no-bos", "softmax off by one, no BOS", {"normalisers": ("off-by-one",), "bos": "none"}),
    ),
    NORMALISERS: (
        Model("clipped", "clipped softmax", {"normalisers": ("clipped",)}),
        Model("softpick", "softpick", {"normalisers": ("softpick",)}),
        Model("sigmoid", "sigmoid", {"normalisers": ("sigmoid",)}),
        Model("elu", "elu + 1", {"normalisers": ("elu",)}),
        Model("relu-none", "ReLU", {"normalisers": ("relu-none",)}),
        Model("relu-index", "ReLU / max(i, 1)", {"normalisers": ("relu-index",)}),
        Model("relu-count", "ReLU / (i + 1)", {"normalisers": ("relu-count",)}),
    ),
}
FORMS = tuple(form for group in GROUPS.values() for form in group)
LABELS = {form.name: form.label for form in FORMS}
SINKING, SHARING, SOLVING = "runs that sink, by weight (%)", "runs that sink, by share (%)", "runs that solve the task (%)"
MEASURES = (
    summary.SOLVED,
    summary.STEPS,
    summary.LEFT,
    summary.ERROR,
    summary.BOS,
    summary.BOS_SHARE,
    summary.ELSEWHERE,
    summary.BOS_TRIGGER,
    summary.ELSEWHERE_TRIGGER,
)
CLAIM = (
    "Ran-Milo 2026 proves a sink for a softmax layer with a BOS that no other token is like, and says (footnote 1) that gated"
    " attention is not covered: which assumption carries the sink."
)


def lessons(config: Assumptions) -> tuple[Lesson, ...]:
    """One training for each model."""
    return tuple(models.lesson(config, form) for form in FORMS)


def derived(config: Assumptions) -> dict[str, Callable[[Any], NDArray]]:
    """Measures that the config's thresholds make of those of every run: float[run], NaN for one that diverged."""

    def share_of(measure: str, holds: Callable[[NDArray], NDArray]) -> Callable[[Any], NDArray]:
        def measured(data: Any) -> NDArray:
            each = summary.values(data, measure)
            return np.where(np.isfinite(each), 100.0 * holds(each), np.nan)

        return measured

    return {
        SOLVING: share_of(summary.LEFT, lambda left: left < config.solved),
        SINKING: share_of(summary.BOS, lambda weight: weight >= config.sinks),
        SHARING: share_of(summary.BOS_SHARE, lambda weight: weight >= config.sinks),
    }


def of(config: Assumptions, data: Any, measure: str) -> Interval:
    """A measure of a model, mean over its runs."""
    made = derived(config)
    values = made[measure](data) if measure in made else summary.values(data, measure)
    return intervals.interval(values, level=LEVEL, seed=config.seed)


def section(config: Assumptions, stores: Mapping[str, xarray.Dataset]) -> Section:
    """Which models sink, and which solve the task."""
    data = {name: store.load() for name, store in stores.items()}
    verdicts = [
        Row(LABELS[name], summary.MODELS, measure, of(config, data[name], measure))
        for name in LABELS
        for measure in (SOLVING, SINKING, SHARING)
    ]
    return Section(
        experiment="trigger/assumptions",
        title="Which assumption carries the sink",
        claim=CLAIM,
        findings=(*_findings(config, data), *summary.exceptions(data, LABELS)),
        rows=(*verdicts, *summary.rows(data, LABELS, MEASURES, config.seed)),
        featured=tuple(LABELS.values()),
        drawings=(*_drawings(config, data), many_maps(config, data, LABELS)),
        notes=(
            *notes(config),
            f"A run sinks where the mean weight on BOS (or share of it) in the rows of all tokens but BOS and the trigger is at"
            f" least {config.sinks:g}. It solves the task where its held-out loss is below {config.solved:g} % of that of a model"
            " that writes nothing.",
            "Without BOS the first token is as any other; 'BOS' names it all the same, and the mean takes it in. All models have"
            " one layer and one head and are trained alike.",
        ),
        provenance=provenance(data),
        claims=_claims(config, data),
        subject="model",
        over="runs",
    )


def _findings(config: Assumptions, data: Mapping[str, Any]) -> tuple[str, ...]:
    def say(name: str, measured: str) -> str:
        return interval(of(config, data[name], measured))

    return tuple(
        f"{label}: {say(name, SOLVING)} % of runs solve the task ({count_of(data[name])} met the stopping rule, loss left"
        f" {say(name, summary.LEFT)} %), {say(name, SINKING)} % sink by weight and {say(name, SHARING)} % by share; weight on BOS"
        f" {say(name, summary.BOS)}, elsewhere {say(name, summary.ELSEWHERE)}."
        for name, label in LABELS.items()
    )


def _claims(config: Assumptions, data: Mapping[str, Any]) -> tuple[Claim, ...]:
    def judged(statement: str, names: tuple[str, ...], measure: str, wanted: float) -> Claim:
        found = {name: of(config, data[name], measure) for name in names}
        said = "; ".join(f"{LABELS[name]} {interval(value)} %" for name, value in found.items())
        holds = all(value.mean == wanted for value in found.values())
        return Claim(statement, verdict(holds), f"{measure}: {said}. Rule: {wanted:g} % of the runs of each.")

    elsewhere = ("gate", "sink-logit", "off-by-one")
    return (
        judged("A softmax layer that solves the task sinks on BOS (Theorem 1).", ("paper",), SINKING, 100),
        judged("Without BOS a softmax layer does not solve the task (what the theorem rests on).", ("no-bos",), SOLVING, 0),
        judged(
            "A gated softmax layer solves it without BOS (footnote 1: gated attention is not covered).",
            ("gate-no-bos",),
            SOLVING,
            100,
        ),
        judged(
            "So does one whose rows may leave weight on no key, by a sink logit or off by one (not in the paper).",
            ("sink-logit-no-bos", "off-by-one-no-bos"),
            SOLVING,
            100,
        ),
        judged(
            "With a BOS, those layers that could do without have no sink (not in the paper).",
            elsewhere,
            SINKING,
            0,
        ),
        judged("ReLU / max(i, 1) solves the task (Theorem 3).", ("relu-index",), SOLVING, 100),
        judged("No ReLU layer has a sink (Theorem 3).", ("relu-none", "relu-index", "relu-count"), SINKING, 0),
    )


def _drawings(config: Assumptions, data: Mapping[str, Any]) -> tuple[Drawing, ...]:
    shown = {
        summary.BOS: "weight on BOS,\nother rows",
        summary.BOS_SHARE: "share of BOS,\nother rows",
        summary.ELSEWHERE: "weight elsewhere,\nother rows",
    }
    columns = {
        title: [Point(form.label, of(config, data[form.name], measure), group) for group in GROUPS for form in GROUPS[group]]
        for measure, title in shown.items()
    }
    sinks = points(columns, "mean over rows and sequences")
    left = {
        "loss left": [
            Point(form.label, of(config, data[form.name], summary.LEFT), group) for group in GROUPS for form in GROUPS[group]
        ]
    }
    loss = points(left, "held-out loss, % of that of a model that writes nothing (log scale)", least=1e-5)
    bars = f"Means over {config.seeds} runs; bars: bootstrap 95 % intervals."
    return (
        Drawing(
            "attention",
            sinks,
            "Where the rows of all tokens but BOS and the trigger put their attention, by model; without BOS the first token is"
            f" shown. Shares of rows that are nearly 0 say little. {bars}",
        ),
        Drawing("loss", loss, f"How much of the loss is left after training, by model. {bars}"),
    )
