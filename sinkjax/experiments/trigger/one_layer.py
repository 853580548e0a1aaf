"""trigger/one-layer: softmax sinks on BOS and ReLU does not, over many seeds; and what edits of BOS do to the trained models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.experiments.base import NO_EDIT, Claim, Lesson, Section
from sinkjax.experiments.summary import Row
from sinkjax.experiments.trigger import figures, measure, models, summary
from sinkjax.experiments.trigger.config import OneLayer
from sinkjax.experiments.trigger.figures import OTHER_KEYS
from sinkjax.experiments.trigger.measure import OTHERS, TRIGGER
from sinkjax.experiments.trigger.models import NORMALISERS, RELU, SOFTMAX, WORDS, Model
from sinkjax.experiments.trigger.words import count_of, notes, provenance, small
from sinkjax.experiments.words import above, below, verdict
from sinkjax.report.table import interval

if TYPE_CHECKING:
    import xarray

LABELS = WORDS
FORMS = tuple(Model(name, label, NORMALISERS[name]) for name, label in WORDS.items())
MEASURES = (
    summary.SOLVED,
    summary.STEPS,
    summary.LOSS,
    summary.ERROR,
    summary.BOS,
    summary.ELSEWHERE,
    summary.BOS_SHARE,
    summary.BOS_TRIGGER,
    summary.ELSEWHERE_TRIGGER,
    summary.BOS_TRIGGER_SHARE,
    summary.UNEVEN,
)
SINK, NONE, EVEN = 0.99, 0.01, 0.05  # the verdicts' bounds, stated with them
PAPER_BOS, PAPER_EACH, NEAR = 0.2, 0.45, 0.05  # weights of ReLU's trigger row that the paper shows, and how near is the same
SPREAD = 0.05  # largest standard deviation over sequences that counts as about 0
CLAIM = (
    "Ran-Milo 2026, Theorems 1 and 3, Fig. 3: to copy the mean of earlier tokens at a trigger and to be silent elsewhere, a"
    " softmax layer puts its attention on BOS at every other row; a ReLU layer needs no such sink."
)


def lessons(config: OneLayer) -> tuple[Lesson, ...]:
    """Softmax and ReLU."""
    return tuple(models.lesson(config, form, config.moves) for form in FORMS)


def section(config: OneLayer, stores: Mapping[str, xarray.Dataset]) -> Section:
    """What both models learned, and what edits do to them."""
    data = {name: store.load() for name, store in stores.items()}
    rows = summary.rows(data, LABELS, MEASURES, config.seed)
    return Section(
        experiment="trigger/one-layer",
        title="One layer, one head: a sink for softmax, none for ReLU",
        claim=CLAIM,
        findings=(*_findings(config, data), *summary.exceptions(data, LABELS)),
        rows=(*rows, *_edit_rows(config, data)),
        featured=tuple(LABELS.values()),
        drawings=(
            figures.single_maps(config, data, LABELS),
            figures.learning(config, data, LABELS),
            figures.edited_losses(config, data, LABELS),
        ),
        notes=(
            *notes(config),
            "Edits act on the trained models, which learn nothing anew. Masking hides BOS's key from every query but its own;"
            " removing its weight sets it to 0 after the normaliser, in all rows but its own. Where BOS changes places with"
            " another token the target stays what it was (the tokens before the trigger are the same, if BOS stays before it).",
        ),
        provenance=provenance(data),
        claims=_claims(config, data),
        subject="model",
        over="runs",
    )


def _edit_rows(config: OneLayer, data: Mapping[str, Any]) -> list[Row]:
    """The loss under each edit, in millionths."""
    found = []
    for name, label in LABELS.items():
        for rows, words in ((TRIGGER, "trigger row"), (OTHERS, "other rows")):
            for edit, value in figures.edits_summary(config, data[name], rows, summary.MILLION).items():
                found.append(Row(f"{label}, {edit}", "edits", f"loss, {words} (millionths)", value))
    return found


def _findings(config: OneLayer, data: Mapping[str, Any]) -> tuple[str, ...]:
    def of(name: str, measured: str) -> str:
        return interval(summary.interval(data[name], measured, config.seed))

    def edited(name: str, edit: str, rows: str) -> str:
        return small(figures.edits_summary(config, data[name], rows)[edit])

    learned = [
        f"{label}: {count_of(data[name])} met the stopping rule (no error of a batch above {config.tolerance:g}), after"
        f" {of(name, summary.STEPS)} steps; held-out loss {of(name, summary.LOSS)} millionths, largest error"
        f" {of(name, summary.ERROR)} in {config.sequences:,} sequences."
        for name, label in LABELS.items()
    ]
    attention = [
        f"{label}: in the rows of other tokens the weight on BOS is {of(name, summary.BOS)} and elsewhere"
        f" {of(name, summary.ELSEWHERE)}; in the trigger's row {of(name, summary.BOS_TRIGGER)} and"
        f" {of(name, summary.ELSEWHERE_TRIGGER)}."
        for name, label in LABELS.items()
    ]
    shown = {
        NO_EDIT: "without an edit",
        measure.MASKED: "with BOS's key masked",
        measure.WEIGHT_OFF: "with its weight removed",
        measure.RENORMALISED: "with the rest renormalised",
        OTHER_KEYS: "with another key masked",
    }
    interventions = [
        f"{label}: the loss of the {words} is "
        + ", ".join(f"{edited(name, edit, rows)} {said}" for edit, said in shown.items())
        + "."
        for name, label in LABELS.items()
        for rows, words in ((OTHERS, "other rows"), (TRIGGER, "trigger's row"))
    ]
    moved = [
        f"{label}, BOS moved to position {place}: loss of the other rows {edited(name, measure.moved(place), OTHERS)}, of the"
        f" trigger's row {edited(name, measure.moved(place), TRIGGER)}."
        for name, label in LABELS.items()
        for place in config.moves
    ]
    return (*learned, *attention, *interventions, *moved, figures.identity(data))


def _claims(config: OneLayer, data: Mapping[str, Any]) -> tuple[Claim, ...]:
    def of(name: str, measured: str) -> Any:
        return summary.interval(data[name], measured, config.seed)

    bos, uneven = of(SOFTMAX, summary.BOS), of(SOFTMAX, summary.UNEVEN)
    quiet, loud = of(RELU, summary.BOS), of(RELU, summary.ELSEWHERE)
    spread = {name: float(data[name]["map_std"].mean("run").max()) for name in LABELS}
    solved = {name: of(name, summary.SOLVED) for name in LABELS}
    place = config.trigger_position
    own = data[RELU]["map_mean"].values[:, 0, 0, place, : place + 1]  # [run, key]
    shown, bos_of_runs, each_of_runs = np.nanmean(own, axis=0), own[:, 0], own[:, 1:].mean(axis=1)
    each = shown[1:]
    return (
        Claim(
            "A softmax layer that solves the task puts nearly all attention of every other row on BOS (Theorem 1, Fig. 3).",
            verdict(above(bos, SINK)),
            f"{interval(bos)}, mean over rows and held-out sequences, interval over runs; smallest of any run"
            f" {summary.values(data[SOFTMAX], summary.BOS).min():.4f}. Rule: the interval lies above {SINK:g}.",
            "about 1.0",
        ),
        Claim(
            "Its trigger row is uniform on tokens 2 to j (Fig. 3; counted from 1).",
            verdict(below(uneven, EVEN)),
            f"The largest difference from 1 / (j - 1) in the row is {interval(uneven)}, mean over sequences. Rule: the interval"
            f" lies below {EVEN:g}.",
        ),
        Claim(
            "A ReLU layer that solves the task has no sink: only the trigger's row is active (Theorem 3, Fig. 3).",
            verdict(below(quiet, NONE) and below(loud, NONE)),
            f"In the other rows its weight on BOS is {interval(quiet)} and on all other keys together {interval(loud)}. Rule:"
            f" both intervals lie below {NONE:g}.",
            "about 0",
        ),
        Claim(
            "Its trigger row puts about 0.45 on tokens 2 to 8 each and 0.2 on BOS (Fig. 3, read off the image).",
            verdict(bool(abs(shown[0] - PAPER_BOS) < NEAR and np.abs(each - PAPER_EACH).max() < NEAR)),
            f"With the trigger at position {place} (from 0) BOS has {shown[0]:.3f} and the tokens after it {each.mean():.3f}"
            f" each (least {each.min():.3f}, most {each.max():.3f}), mean over runs; from run to run {_from_to(bos_of_runs)} and"
            f" {_from_to(each_of_runs)}. Rule: means within {NEAR:g} of the paper's. The scale is free, as values"
            " can make up for it.",
            "0.45 and 0.2, one seed",
        ),
        Claim(
            "Attention does not depend on the sequence: its standard deviation is about 0 (Fig. 3).",
            verdict(max(spread.values()) < SPREAD),
            f"Largest standard deviation over sequences of any weight, mean over runs: softmax {spread[SOFTMAX]:.3f}, ReLU"
            f" {spread[RELU]:.3f}. Rule: below {SPREAD:g}.",
            "about 0",
        ),
        Claim(
            "Both learn the task to a largest error below 0.005.",
            verdict(all((value.mean or 0) == 100 for value in solved.values())),
            "; ".join(f"{LABELS[name]}: {count_of(data[name])}" for name in LABELS) + ". Rule: every run.",
        ),
    )


def _from_to(values: NDArray) -> str:
    """The range of some numbers."""
    return f"{np.nanmin(values):.3f} to {np.nanmax(values):.3f}"
