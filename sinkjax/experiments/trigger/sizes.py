"""trigger/sizes: one thing of the single-head model at a time made smaller or larger, for softmax and for ReLU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sinkjax.experiments.base import Drawing, Lesson, Section
from sinkjax.experiments.trigger import models, summary
from sinkjax.experiments.trigger.config import Sizes
from sinkjax.experiments.trigger.models import NORMALISERS, WORDS, Model
from sinkjax.experiments.trigger.words import count_of, notes, provenance
from sinkjax.report.figures.points import Point, points
from sinkjax.report.table import interval

if TYPE_CHECKING:
    import xarray

FORMS = {name: (WORDS[name], NORMALISERS[name]) for name in WORDS}
BASE = "1 layer, 1 head"
MEASURES = (
    summary.SOLVED,
    summary.STEPS,
    summary.LEFT,
    summary.ERROR,
    summary.BOS,
    summary.BOS_SHARE,
    summary.ELSEWHERE,
    summary.BOS_TRIGGER,
)
CLAIM = "Which of depth, heads, width, length, BOS and the scale of scores decides whether a trained model sinks on BOS."


def variants(config: Sizes) -> dict[str, tuple[str, dict[str, Any]]]:
    """Name -> label and what differs from one layer and one head, one thing at a time."""
    found: dict[str, tuple[str, dict[str, Any]]] = {"base": (BASE, {})}
    for layers in config.layers:
        deep = {"layers": layers, "residual": True, "learning_rates": (config.deep_rate,)}
        found[f"{layers}-layers"] = (f"{layers} layer{'s' * (layers > 1)}, residual", deep)
    for heads in config.heads:
        found[f"{heads}-heads"] = (f"{heads} head{'s' * (heads > 1)}", {"heads": heads})
    for width in config.widths:
        found[f"width-{width}"] = (f"n = {width}", {"width": width})
    for length in config.lengths:
        found[f"length-{length}"] = (f"L = {length}", {"length": length})
    found["no-bos"] = ("no BOS", {"bos": "none"})
    found["scaled"] = ("scores / sqrt(n)", {"scaled": True})
    return found


def forms(config: Sizes) -> tuple[Model, ...]:
    """Every variant of softmax and of ReLU."""
    return tuple(
        Model(f"{form}-{name}", f"{words}: {label}", {**extra, **changes})
        for form, (words, extra) in FORMS.items()
        for name, (label, changes) in variants(config).items()
    )


def lessons(config: Sizes) -> tuple[Lesson, ...]:
    """One training for each model."""
    return tuple(models.lesson(config, form) for form in forms(config))


def section(config: Sizes, stores: Mapping[str, xarray.Dataset]) -> Section:
    """Where each model puts its attention, and whether it solves the task."""
    data = {name: store.load() for name, store in stores.items()}
    labels = {form.name: form.label for form in forms(config)}
    return Section(
        experiment="trigger/sizes",
        title="Depth, heads, width, length, BOS and scale, one at a time",
        claim=CLAIM,
        findings=(*_findings(config, data, labels), *summary.exceptions(data, labels)),
        rows=tuple(summary.rows(data, labels, MEASURES, config.seed)),
        featured=tuple(labels.values()),
        drawings=(_drawing(config, data),),
        notes=(
            *notes(config),
            f"Each model differs in one thing from {BASE} without a residual stream, scores without 1 / sqrt(n), n ="
            f" {config.width}, L = {config.length}. Depth comes with a residual stream, so one layer with one is there too; those"
            f" learn at a rate of {config.deep_rate:g}, all others at {config.rate:g}. Without BOS the first token is as any"
            " other, and 'BOS' names it; it is averaged too. Means over layers and heads.",
        ),
        provenance=provenance(data),
        subject="model",
        over="runs",
    )


def _findings(config: Sizes, data: Mapping[str, Any], labels: Mapping[str, str]) -> tuple[str, ...]:
    def of(name: str, measured: str) -> str:
        return interval(summary.interval(data[name], measured, config.seed))

    return tuple(
        f"{label}: weight on BOS in the rows of other tokens {of(name, summary.BOS)}, elsewhere {of(name, summary.ELSEWHERE)};"
        f" {count_of(data[name])} met the stopping rule, after {of(name, summary.STEPS)} steps; loss left"
        f" {of(name, summary.LEFT)} %."
        for name, label in labels.items()
    )


def _drawing(config: Sizes, data: Mapping[str, Any]) -> Drawing:
    """Attention, loss and steps of every variant."""
    shown = {summary.BOS: "weight on BOS,\nother rows", summary.BOS_SHARE: "share of BOS,\nother rows"}
    columns = {
        title: [
            Point(label, summary.interval(data[f"{form}-{name}"], measured, config.seed), words)
            for form, (words, _) in FORMS.items()
            for name, (label, _) in variants(config).items()
        ]
        for measured, title in shown.items()
    }
    figure = points(columns, "mean over layers, heads, rows and sequences")
    caption = (
        f"Attention to BOS in the rows of all tokens but BOS and the trigger, one thing changed at a time; means over"
        f" {config.seeds} runs, bars: bootstrap 95 % intervals. Shares of rows that are nearly 0 say little (ReLU)."
    )
    return Drawing("sizes", figure, caption)
