"""The figures that studies of the trigger task share: maps, learning curves, the loss under edits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkjax.studies as st
from sinkjax.analysis.intervals import Interval
from sinkjax.report.figures.causal import causal, gallery
from sinkjax.report.figures.curves import Axis, Bundle, curves
from sinkjax.report.figures.points import Point, points
from sinkjax.report.section import Drawing
from sinkjax.studies.papers.trigger._lab import IDENTITY, OTHERS, TRIGGER
from sinkjax.studies.study import NO_EDIT

SMALLEST_LOSS = 1e-9  # smaller losses are drawn here
OTHER_KEYS, OTHER_VALUES = "another key masked (mean)", "another value removed (mean)"


def over_runs(results: st.Results) -> str:
    """What the intervals of a figure are over."""
    config, (first, *_) = results.config, results.trained.values()
    shared = " (initialisations only: all have the same data)" if config.shared_data else ""
    return f"{first.sizes['run']} runs{shared}, n = {config.width}, L = {config.length}"


def _held_out(config: Any) -> str:
    return f"{config.map_sequences:,} held-out sequences with the trigger at position {config.trigger_position}"


def single_maps(results: st.Results, labels: Mapping[str, str]) -> Drawing:
    """Mean and standard deviation of attention of models of one head, one column per model, on one scale: the paper's Fig. 3."""
    config, kinds = results.config, {"mean": "map_mean", "standard deviation": "map_std"}
    maps = np.array([[results[name][kind].mean("run").values[0, 0] for name in labels] for kind in kinds.values()])
    caption = (
        f"Attention weights over {_held_out(config)} (arrow): mean and standard deviation over sequences, averaged over"
        f" {over_runs(results)}. Fig. 3 of Ran-Milo 2026 shows one run and counts positions from 1."
    )
    return Drawing("maps", causal(maps, [*kinds], [*labels.values()], "attention weight", config.trigger_position), caption)


def many_maps(results: st.Results, labels: Mapping[str, str]) -> Drawing:
    """Mean attention of models of one head, one panel per model."""
    maps = np.stack([results[name]["map_mean"].mean("run").values[0, 0] for name in labels])
    figure = gallery(maps, [*labels.values()], "attention weight", marked=results.config.trigger_position, limits=(0, 1))
    caption = (
        f"Attention weights, mean over {_held_out(results.config)} (arrow) and over {over_runs(results)}. Weights above 1 have"
        " the colour of 1."
    )
    return Drawing("maps", figure, caption)


def head_maps(results: st.Results, name: str, label: str) -> Drawing:
    """The attention of every head of the first run on one sequence, one row per layer: the paper's Figs. 4 to 8."""
    data, place = results[name], results.config.trigger_position
    layers, heads = ([f"{axis} {number}" for number in range(data.sizes[axis])] for axis in ("layer", "head"))
    figure = causal(data["map_example"].values[0], layers, heads, "attention weight", place)
    caption = (
        f"{label}: attention of every head on one held-out sequence with the trigger at position {place} (arrow), of the run with"
        f" seed {int(data['run'][0])}. The paper counts layers, heads and positions from 1."
    )
    return Drawing(f"heads-{name}", figure, caption)


def by_model(
    results: st.Results,
    name: str,
    shown: Mapping[str, str],
    kinds: Mapping[str, Mapping[str, str]],
    xlabel: str,
    caption: str,
    least: float | None = None,
) -> Drawing:
    """Measures of every model. shown: title of a panel -> measure. kinds: colour -> name of a line -> label of its model."""
    columns = {
        title: [
            Point(line, results.own_row(label, measure).value, kind)
            for kind, labels in kinds.items()
            for line, label in labels.items()
        ]
        for title, measure in shown.items()
    }
    end = f"Means over {results.config.seeds} runs; bars: 95 % intervals."
    return Drawing(name, points(columns, xlabel, least=least), f"{caption} {end}")


def learning(results: st.Results, labels: Mapping[str, str]) -> Drawing:
    """Loss and BOS mass against steps, and against each other, while models learn; a line for each run."""
    loss, mass, path = [], [], []
    for name, label in labels.items():
        steps, bos, losses = (results[name][f"curve_{what}"].values for what in ("step", "bos", "loss"))
        losses = np.maximum(losses, SMALLEST_LOSS)
        loss.append(Bundle(label, steps, losses, _medians(steps, losses)))
        mass.append(Bundle(label, steps, bos, _medians(steps, bos)))
        path.append(Bundle(label, bos, losses))
    bos_label = "weight on BOS, other rows"
    panels = [
        Axis("", "step", "held-out loss", loss, "y"),
        Axis("", "step", bos_label, mass, "", (0, 1.05)),
        Axis("", bos_label, "held-out loss", path, "y"),
    ]
    caption = (
        "Loss and attention on held-out sequences during training, against steps (thin: each run; bold: the median, in which a"
        " run that is done keeps its last value) and against each other. Other rows are those of all tokens but BOS and the"
        f" trigger; models with several heads are shown by their mean over heads. {over_runs(results)}."
    )
    return Drawing("learning", curves([panels]), caption)


def _medians(steps: NDArray, values: NDArray) -> tuple[NDArray, NDArray]:
    """The step of each evaluation (the largest: that of the runs that did not end in it), and the median over all runs."""
    kept = values.copy()
    for place in range(1, kept.shape[1]):  # a run that is done keeps its last value, so that its end does not bend the median
        kept[:, place] = np.where(np.isnan(kept[:, place]), kept[:, place - 1], kept[:, place])
    return np.nanmax(steps, axis=0), np.median(kept, axis=0)


def edited_losses(results: st.Results, labels: Mapping[str, str]) -> Drawing:
    """The loss of trained models under each edit, in the trigger's row and in the others; controls are averaged."""
    columns = {
        title: [
            Point(edit, value, label)
            for name, label in labels.items()
            for edit, value in edits_summary(results, name, rows).items()
        ]
        for rows, title in ((TRIGGER, "trigger row"), (OTHERS, "other rows"))
    }
    figure = points(columns, "mean squared error of the output (log scale)", least=SMALLEST_LOSS)
    caption = (
        f"The loss of trained models under edits, on {_held_out(results.config)}, by rows. Controls: the same edit of each other"
        f" token but the trigger, averaged. Means over {over_runs(results)}; bars: 95 % intervals. Losses below"
        f" {SMALLEST_LOSS:g} are drawn there."
    )
    return Drawing("interventions", figure, caption)


def edits_summary(results: st.Results, name: str, rows: str, factor: float = 1.0) -> dict[str, Interval]:
    """Label of an edit -> the loss over some rows times a factor, mean over runs; controls of one kind are averaged."""
    losses = factor * results[name]["edited_loss"].sel(error_rows=rows).transpose("edit", "run").values
    kinds: dict[str, list[int]] = {}
    for number, edit in enumerate(results[name]["edit"].values):
        kind = OTHER_KEYS if edit.startswith("key ") else OTHER_VALUES if edit.startswith("value ") else str(edit)
        kinds.setdefault(kind, []).append(number)
    return {kind: results.interval(losses[chosen].mean(axis=0)) for kind, chosen in kinds.items()}


def noop(names: Sequence[str]) -> st.Quantity:
    """The largest change of any loss, in any run and rows, when 0 is added to BOS's logit. names: of trainings."""

    def largest(results: st.Results) -> float:
        losses = [results[name]["edited_loss"] for name in names]
        return max(np.abs(loss.sel(edit=IDENTITY) - loss.sel(edit=NO_EDIT)).max().item() for loss in losses)

    return st.quantity("largest change of a loss by the identity edit (0 added to BOS's logit)", largest)
