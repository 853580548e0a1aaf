"""The figures that experiments of the trigger lab share: maps, learning curves, the loss under edits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import intervals
from sinkjax.analysis.intervals import Interval
from sinkjax.analysis.rules import Quantity, quantity
from sinkjax.analysis.summary import LEVEL
from sinkjax.report.figures.causal import causal, gallery
from sinkjax.report.figures.curves import Axis, Bundle, curves
from sinkjax.report.figures.points import Point, points
from sinkjax.report.section import Drawing
from sinkjax.studies.papers.trigger._lab import IDENTITY, OTHERS, TRIGGER, Lab, Trials
from sinkjax.studies.study import NO_EDIT

PAPER = "Positions are called as in the paper, from 1: the arrow marks the trigger."
SMALLEST_LOSS = 1e-9  # what is lower is drawn here


def over_runs(config: Trials, data: Any) -> str:
    """What the intervals of a figure are over."""
    runs = data.sizes["run"]
    shared = " (initialisations only: all have the same data)" if config.shared_data else ""
    return f"{runs} runs{shared}, n = {config.width}, L = {config.length}"


def single_maps(config: Lab, stores: Mapping[str, Any], labels: Mapping[str, str]) -> Drawing:
    """Mean and standard deviation of attention of models of one head, one column a model, on one scale: the paper's Fig. 3."""
    maps = [[stores[name][kind].mean("run").values[0, 0] for name in labels] for kind in ("map_mean", "map_std")]
    figure = causal(
        np.array(maps), ("mean", "standard deviation"), tuple(labels.values()), "attention weight", config.trigger_position, 1
    )
    caption = (
        f"Attention weights over {config.map_sequences:,} held-out sequences with the trigger at position"
        f" {config.trigger_position + 1}: mean and standard deviation over sequences, averaged over"
        f" {over_runs(config, stores[next(iter(labels))])}. {PAPER} (Fig. 3 of Ran-Milo 2026 shows one run.)"
    )
    return Drawing("maps", figure, caption)


def many_maps(config: Lab, stores: Mapping[str, Any], labels: Mapping[str, str]) -> Drawing:
    """Mean attention of models of one head, one panel a model."""
    maps = np.stack([stores[name]["map_mean"].mean("run").values[0, 0] for name in labels])
    figure = gallery(maps, list(labels.values()), "attention weight", 5, config.trigger_position, 1, (0, 1))
    caption = (
        f"Attention weights, mean over {config.map_sequences:,} held-out sequences with the trigger at position"
        f" {config.trigger_position + 1} and over {over_runs(config, stores[next(iter(labels))])}. {PAPER} Weights above 1 have"
        " the colour of 1."
    )
    return Drawing("maps", figure, caption)


def head_maps(config: Lab, name: str, label: str, data: Any, run: int = 0) -> Drawing:
    """The attention of every head of one run on one sequence, one row a layer: the paper's Figs. 4 to 8."""
    L, H = data.sizes["layer"], data.sizes["head"]
    figure = causal(
        data["map_example"].values[run],
        [f"layer {layer + 1}" for layer in range(L)],
        [f"head {head + 1}" for head in range(H)],
        "attention weight",
        config.trigger_position,
        1,
    )
    caption = (
        f"{label}: attention of every head on one held-out sequence, of the run with seed {int(data['run'][run])}. {PAPER} Layers"
        " and heads are counted from 1 here too; files and arrays count from 0."
    )
    return Drawing(f"heads-{name}", figure, caption)


def learning(config: Lab, stores: Mapping[str, Any], labels: Mapping[str, str]) -> Drawing:
    """Loss and BOS mass against steps, and against each other, while models learn; a line for each run."""
    loss, mass, path = [], [], []
    for name, label in labels.items():
        data = stores[name]
        steps, bos = data["curve_step"].values, data["curve_bos"].values
        y = np.maximum(data["curve_loss"].values, SMALLEST_LOSS)
        loss.append(Bundle(label, steps, y, _medians(steps, y)))
        mass.append(Bundle(label, steps, bos, _medians(steps, bos)))
        path.append(Bundle(label, bos, y))
    bos_label = "weight on BOS, other rows"
    figure = curves(
        [
            [
                Axis("", "step", "held-out loss", loss, "y"),
                Axis("", "step", bos_label, mass, "", (0, 1.05)),
                Axis("", bos_label, "held-out loss", path, "y"),
            ]
        ]
    )
    caption = (
        "Loss and attention while the models learn, on held-out sequences: against steps (thin: each run; bold: the median, where"
        " a run that is done counts on with its last value), and against each other. Other rows are those of all tokens but BOS"
        " and the trigger; in models of many heads their mean is shown."
        f" {over_runs(config, stores[next(iter(labels))])}."
    )
    return Drawing("learning", figure, caption)


def _medians(steps: NDArray, values: NDArray) -> tuple[NDArray, NDArray]:
    """Steps, and the median over all runs; a run that is done keeps its last value, lest its end bend the line."""
    kept = values.copy()
    for place in range(1, kept.shape[1]):
        kept[:, place] = np.where(np.isnan(kept[:, place]), kept[:, place - 1], kept[:, place])
    return _latest(steps), np.median(kept, axis=0)


def _latest(steps: NDArray) -> NDArray:
    """The largest step of each evaluation, that of the runs which did not end in it."""
    return np.nanmax(steps, axis=0)


def edited_losses(config: Lab, stores: Mapping[str, Any], labels: Mapping[str, str]) -> Drawing:
    """The loss of trained models under each edit, at the trigger's row and at the others; the controls as their mean."""
    columns: dict[str, list[Point]] = {}
    for rows, title in ((TRIGGER, "trigger row"), (OTHERS, "other rows")):
        columns[title] = [
            Point(edit, value, label)
            for name, label in labels.items()
            for edit, value in edits_summary(config, stores[name], rows).items()
        ]
    figure = points(columns, "mean squared error of the output (log scale)", least=SMALLEST_LOSS)
    caption = (
        f"The loss under edits of trained models, {config.map_sequences:,} held-out sequences with the trigger at position"
        f" {config.trigger_position} (from 0), by rows. Controls: the same done to each other token but the trigger, in turn,"
        f" averaged. Means over {over_runs(config, stores[next(iter(labels))])}; bars: bootstrap 95 % intervals. What is below"
        f" {SMALLEST_LOSS:g} is drawn there."
    )
    return Drawing("interventions", figure, caption)


OTHER_KEYS, OTHER_VALUES = "another key masked (mean)", "another value removed (mean)"


def edits_summary(config: Lab, data: Any, rows: str, factor: float = 1.0) -> dict[str, Interval]:
    """Label of an edit -> the loss over some rows times a factor, mean over runs; all controls of a kind as one."""
    names = [str(name) for name in data["edit"].values]
    losses = factor * data["edited_loss"].sel(error_rows=rows).transpose("edit", "run").values
    kinds: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        kinds.setdefault(kind(name), []).append(number)
    return {
        name: intervals.interval(losses[chosen].mean(axis=0), level=LEVEL, seed=config.seed) for name, chosen in kinds.items()
    }


def noop(names: Sequence[str]) -> Quantity:
    """The largest change that 0 added to BOS's logit makes to any loss, in any run and rows. names: of trainings."""

    def largest(results: Any) -> float:
        losses = [results[name]["edited_loss"] for name in names]
        return max(np.abs(loss.sel(edit=IDENTITY) - loss.sel(edit=NO_EDIT)).max().item() for loss in losses)

    return quantity("largest change of a loss by the identity edit (0 added to BOS's logit)", largest)


def kind(edit: str) -> str:
    """The name under which an edit is summarised: its own, or that of its kind of control."""
    if edit.startswith("key "):
        return OTHER_KEYS
    return OTHER_VALUES if edit.startswith("value ") else edit
