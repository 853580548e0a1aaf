"""trigger/assumptions: one assumption of the theorem at a time removed; which models still sink, and which solve the task."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkjax.studies as st
from sinkjax.analysis import intervals
from sinkjax.analysis.intervals import Interval
from sinkjax.analysis.summary import LEVEL
from sinkjax.report.section import Drawing
from sinkjax.studies.papers.trigger import _lab as lab
from sinkjax.studies.papers.trigger._figures import many_maps
from sinkjax.studies.papers.trigger._lab import Judged, Model
from sinkjax.studies.study import TrainingSpec

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
    lab.SOLVED,
    lab.STEPS,
    lab.LEFT,
    lab.ERROR,
    lab.BOS,
    lab.BOS_SHARE,
    lab.ELSEWHERE,
    lab.BOS_TRIGGER,
    lab.ELSEWHERE_TRIGGER,
)


@dataclass(frozen=True, kw_only=True)
class Assumptions(Judged):
    """One layer and one head, and one assumption of the theorem at a time removed: which still sink, which solve the task."""

    steps: int = 10_000
    """of a run, unless it is done before"""


def derived(config: Assumptions) -> dict[str, Callable[[Any], NDArray]]:
    """Measures that the config's thresholds make of those of every run: float[run], NaN for one that diverged."""

    def share_of(measure: str, holds: Callable[[NDArray], NDArray]) -> Callable[[Any], NDArray]:
        def measured(data: Any) -> NDArray:
            each = lab.values(data, measure)
            return np.where(np.isfinite(each), 100.0 * holds(each), np.nan)

        return measured

    return {
        SOLVING: share_of(lab.LEFT, lambda left: left < config.solved),
        SINKING: share_of(lab.BOS, lambda weight: weight >= config.sinks),
        SHARING: share_of(lab.BOS_SHARE, lambda weight: weight >= config.sinks),
    }


def of(config: Assumptions, data: Any, measure: str) -> Interval:
    """A measure of a model, mean over its runs."""
    made = derived(config)
    values = made[measure](data) if measure in made else lab.values(data, measure)
    return intervals.interval(values, level=LEVEL, seed=config.seed)


def rows(results: st.Results) -> list[st.Row]:
    config, data = results.config, results.trained
    judged = (SOLVING, SINKING, SHARING)
    found = [st.Row(LABELS[name], lab.MODELS, measure, of(config, data[name], measure)) for name in LABELS for measure in judged]
    return found + lab.rows(data, LABELS, MEASURES, config.seed)


def share(name: str, measure: str) -> st.Quantity:
    """A measure of one model, mean over its runs."""
    return st.quantity(f"{LABELS[name]}: {measure}", lambda results: of(results.config, results[name], measure))


def claims(config: Assumptions, architecture: Any) -> Iterator[st.Claim]:
    def every(measure: str, *names: str) -> st.Rule:
        return st.all_of(*(st.at_least(share(name, measure), 100) for name in names))

    def none(measure: str, *names: str) -> st.Rule:
        return st.all_of(*(st.at_most(share(name, measure), 0) for name in names))

    yield st.Claim("A softmax layer that solves the task sinks on BOS (Theorem 1).", every(SINKING, "paper"))
    yield st.Claim("Without BOS a softmax layer does not solve the task (what the theorem rests on).", none(SOLVING, "no-bos"))
    gated = "A gated softmax layer solves it without BOS (footnote 1: gated attention is not covered)."
    yield st.Claim(gated, every(SOLVING, "gate-no-bos"))
    empty = "So does one whose rows may leave weight on no key, by a sink logit or off by one (not in the paper)."
    yield st.Claim(empty, every(SOLVING, "sink-logit-no-bos", "off-by-one-no-bos"))
    spare = "With a BOS, those layers that could do without have no sink (not in the paper)."
    yield st.Claim(spare, none(SINKING, "gate", "sink-logit", "off-by-one"))
    yield st.Claim("ReLU / max(i, 1) solves the task (Theorem 3).", every(SOLVING, "relu-index"))
    yield st.Claim("No ReLU layer has a sink (Theorem 3).", none(SINKING, "relu-none", "relu-index", "relu-count"))


def findings(config: Assumptions, architecture: Any) -> Iterator[st.Quantity]:
    for name in LABELS:
        yield from (share(name, measure) for measure in (SOLVING, lab.LEFT, SINKING, SHARING, lab.BOS, lab.ELSEWHERE))


def masses(results: st.Results) -> Drawing:
    shown = {
        lab.BOS: "weight on BOS,\nother rows",
        lab.BOS_SHARE: "share of BOS,\nother rows",
        lab.ELSEWHERE: "weight elsewhere,\nother rows",
    }
    caption = """Where the rows of all tokens but BOS and the trigger put their attention, by model; without BOS the first
        token is shown. Shares of rows that are nearly 0 say little."""
    return by_model(results, "attention", shown, "mean over rows and sequences", caption)


def losses(results: st.Results) -> Drawing:
    xlabel = "held-out loss, % of that of a model that writes nothing (log scale)"
    return by_model(
        results, "loss", {lab.LEFT: "loss left"}, xlabel, "How much of the loss is left after training, by model.", 1e-5
    )


def by_model(
    results: st.Results, name: str, shown: dict[str, str], xlabel: str, caption: str, least: float | None = None
) -> Drawing:
    """Measures (the titles of panels) of every model, coloured by what is changed."""
    from sinkjax.report.figures.points import Point, points

    config, data = results.config, results.trained
    columns = {
        title: [Point(form.label, of(config, data[form.name], measure), group) for group in GROUPS for form in GROUPS[group]]
        for measure, title in shown.items()
    }
    end = f"Means over {config.seeds} runs; bars: bootstrap 95 % intervals."
    return Drawing(name, points(columns, xlabel, least=least), f"{' '.join(caption.split())} {end}")


def trainings(config: Any) -> list[TrainingSpec]:
    from sinkjax.studies.papers.trigger._measure import training_spec  # imports JAX

    return [training_spec(config, form) for form in FORMS]


STUDY = st.Study(
    name="trigger/assumptions",
    config=Assumptions,
    title="Which assumption carries the sink",
    question="""Ran-Milo 2026 proves a sink for a softmax layer with a BOS that no other token is like, and says (footnote 1) that
        gated attention is not covered: which assumption carries the sink.""",
    trainings=trainings,
    rows=rows,
    claims=claims,
    findings=findings,
    featured=lambda results: tuple(LABELS.values()),
    figures=lambda config, architecture: [masses, losses, lambda results: many_maps(config, results.trained, LABELS)],
    notes=lambda config, results: (
        *lab.notes(config),
        f"""A run sinks where the mean weight on BOS (or share of it) in the rows of all tokens but BOS and the trigger is
        at least {config.sinks:g}. It solves the task where its held-out loss is below {config.solved:g} % of that of a
        model that writes nothing.""",
        """Without BOS the first token is as any other; 'BOS' names it all the same, and the mean takes it in. All models have one
        layer and one head and are trained alike.""",
    ),
    status=lambda results: lab.unfinished(results.trained, LABELS),
    provenance=lambda results: lab.provenance(results.trained),
    subject="model",
    over="runs",
)
