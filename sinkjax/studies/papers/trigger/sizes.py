"""trigger/sizes: one thing of the single-head model at a time made smaller or larger, for softmax and for ReLU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import sinkjax.studies as st
from sinkjax.config_files.checks import above, each_once
from sinkjax.errors import SinkjaxError
from sinkjax.report.section import Drawing
from sinkjax.studies.papers.trigger import _lab as lab
from sinkjax.studies.papers.trigger._lab import LABELS, NORMALISERS, SMALLEST, Lab, Model
from sinkjax.studies.study import TrainingSpec

FORMS = {name: (LABELS[name], NORMALISERS[name]) for name in LABELS}
BASE = "1 layer, 1 head"
MEASURES = (lab.SOLVED, lab.STEPS, lab.LEFT, lab.ERROR, lab.BOS, lab.BOS_SHARE, lab.ELSEWHERE, lab.BOS_TRIGGER)


@dataclass(frozen=True, kw_only=True)
class Sizes(Lab):
    """One layer and one head, and one thing at a time made smaller or larger: depth, heads, n, L, BOS, the scale of scores."""

    seeds: int = 3
    """runs of each model, each with an initialisation and data of its own"""
    steps: int = 20_000
    """of a run, unless it is done before"""
    layers: tuple[int, ...] = (1, 2, 4)
    """depths, with a residual stream wherever there is more than one layer"""
    heads: tuple[int, ...] = (2, 4)
    """heads of one layer, each n wide"""
    widths: tuple[int, ...] = (8, 32)
    """other values of n"""
    lengths: tuple[int, ...] = (8, 32)
    """other values of L"""
    deep_rate: float = 1e-4
    """of Adam's steps for models with a residual stream, as in the paper"""

    def __post_init__(self) -> None:
        super().__post_init__()
        above(self, deep_rate=0)
        shortest = self.trigger_position + 1  # the trigger of the maps must fit
        for name, least in (("layers", 1), ("heads", 1), ("widths", SMALLEST), ("lengths", shortest)):
            each_once(self, name)
            if min(getattr(self, name)) < least:
                raise SinkjaxError(f"{name} must be at least {least}, and holds {min(getattr(self, name))}")


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
        Model(f"{form}-{name}", f"{label_of_form}: {label}", {**extra, **changes})
        for form, (label_of_form, extra) in FORMS.items()
        for name, (label, changes) in variants(config).items()
    )


def labels(config: Sizes) -> dict[str, str]:
    return {form.name: form.label for form in forms(config)}


def findings(config: Sizes, architecture: Any) -> Iterator[st.Quantity]:
    for name, label in labels(config).items():
        yield lab.done(name, label)
        for measure in (lab.BOS, lab.ELSEWHERE, lab.STEPS, lab.LEFT):
            yield lab.measured(name, measure, f"{label}: {measure}")


def masses(results: st.Results) -> Drawing:
    """Attention, loss and steps of every variant."""
    from sinkjax.report.figures.points import Point, points

    config, data = results.config, results.trained
    shown = {lab.BOS: "weight on BOS,\nother rows", lab.BOS_SHARE: "share of BOS,\nother rows"}
    columns = {
        title: [
            Point(label, lab.interval(data[f"{form}-{name}"], measured, config.seed), kind)
            for form, (kind, _) in FORMS.items()
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


def trainings(config: Any) -> list[TrainingSpec]:
    from sinkjax.studies.papers.trigger._measure import training_spec  # imports JAX

    return [training_spec(config, form) for form in forms(config)]


STUDY = st.Study(
    name="trigger/sizes",
    config=Sizes,
    title="Depth, heads, width, length, BOS and scale, one at a time",
    question="Which of depth, heads, width, length, BOS and the scale of scores decides whether a trained model sinks on BOS.",
    trainings=trainings,
    rows=lambda results: lab.rows(results.trained, labels(results.config), MEASURES, results.config.seed),
    findings=findings,
    featured=lambda results: tuple(labels(results.config).values()),
    figures=lambda config, architecture: [masses],
    notes=lambda config, results: (
        *lab.notes(config),
        f"""Each model differs in one thing from {BASE} without a residual stream, scores without 1 / sqrt(n), n =
        {config.width}, L = {config.length}. Depth comes with a residual stream, so one layer with one is there too; those
        learn at a rate of {config.deep_rate:g}, all others at {config.rate:g}. Without BOS the first token is as any other,
        and 'BOS' names it; it is averaged too. Means over layers and heads.""",
    ),
    status=lambda results: lab.unfinished(results.trained, labels(results.config)),
    provenance=lambda results: lab.provenance(results.trained),
    subject="model",
    over="runs",
)
