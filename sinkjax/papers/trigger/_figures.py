"""The figures of the studies of the trigger task: maps, learning curves, masses by model, the loss under edits."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import intervals
from sinkjax.analysis.estimates import Absent
from sinkjax.analysis.intervals import Interval
from sinkjax.analysis.summary import Row
from sinkjax.papers.trigger._outcomes import IDENTITY, MILLION, OTHERS, TRIGGER, by_head
from sinkjax.report.figures.dots import Mark, points
from sinkjax.report.figures.heatmaps import MapColumn, MapRow, causal, gallery, grids
from sinkjax.report.figures.lines import Axis, Bundle, Line, Panel, curves
from sinkjax.report.figures.lines import lines as line_figure
from sinkjax.report.section import Drawing
from sinkjax.study import NO_EDIT, Measure, Numbers, TrainedModels, from_results, read_measure

SMALLEST_LOSS = 1e-9  # smaller losses are drawn here
OTHER_KEYS, OTHER_VALUES = "another key masked (mean)", "another value removed (mean)"
LEAST = [round(0.05 * step, 2) for step in range(1, 20)]  # lowest masses of a counted head, along a figure
ROW_TITLES = {TRIGGER: "trigger row", OTHERS: "other rows"}


def trained(read: Numbers, shown: Sequence[TrainedModels]) -> dict[str, str]:
    """The models that have been trained: name of a training -> its label."""
    return {one.name: one.label for one in shown if one.name in read}


def over_runs(read: Numbers) -> str:
    """The sampling unit of a figure's intervals."""
    config, (first, *_) = read.settings, read.trained.values()
    shared = " (initialisations only: all have the same data)" if config.shared_data else ""
    return f"{first.sizes['run']} runs{shared}, n = {config.width}, L = {config.length}"


def _held_out(read: Numbers) -> str:
    config = read.settings
    return f"{config.map_sequences:,} held-out sequences with the trigger at position {config.trigger_position}"


def mean_maps(read: Numbers, shown: Sequence[TrainedModels]) -> Drawing:
    """Mean attention of single-head models, one panel per model, on one colour scale (the paper's Fig. 3)."""
    labels = trained(read, shown)
    maps, spread = (np.stack([read[name][kind].mean("run").values[0, 0] for name in labels]) for kind in ("map_mean", "map_std"))
    figure = gallery(maps, [*labels.values()], "attention weight", read.settings.trigger_position)
    caption = f"""Attention weights, mean over {_held_out(read)} (arrow) and {over_runs(read)}; weights above 1 have the colour
        of 1. Their standard deviation over sequences is at most {spread.max():.2g}. Fig. 3 of Ran-Milo 2026 counts positions
        from 1."""
    return Drawing("maps", figure, caption)


def head_maps(read: Numbers, training: TrainedModels) -> Drawing:
    """The attention of every head of the first run on one sequence, one row per layer (the paper's Figs. 4 to 8)."""
    data, place = read[training.name], read.settings.trigger_position
    depth, heads = ([f"{axis} {number}" for number in range(data.sizes[axis])] for axis in ("layer", "head"))
    figure = causal(data["map_example"].values[0], depth, heads, "attention weight", place)
    caption = f"""{training.label}: attention of every head on one held-out sequence with the trigger at position {place} (arrow),
        of the run with seed {int(data["run"][0])}. The paper counts layers, heads and positions from 1."""
    return Drawing(f"heads-{training.name}", figure, caption)


def by_model(
    read: Numbers,
    name: str,
    measures: Sequence[Measure],
    groups: Mapping[str, Mapping[TrainedModels, str]],
    xlabel: str,
    caption: str,
    least: float | None = None,
) -> Drawing:
    """Measures of every model.

    Args:
        read: The stores.
        name: Name of the figure.
        measures: A panel each.
        groups: Colour -> training -> the label of its line.
        xlabel: The x label of all panels.
        caption: The caption.
        least: Smaller numbers are drawn here, on a logarithmic axis; None: a linear one.
    """
    columns = {}
    models = [(one.name, line, group) for group, lines in groups.items() for one, line in lines.items() if one.name in read]
    for measure in measures:
        marks = [Mark(line, read.interval(read_measure(measure, read[name])), group) for name, line, group in models]
        columns[measure.name.replace(" in ", "\nin ", 1)] = marks
    end = f"Means over {read.settings.seeds} runs; bars: 95% intervals."
    units = {measure.unit for measure in measures}
    return Drawing(name, points(columns, xlabel, least=least, shared=len(units) == 1), f"{caption} {end}")


def learning(read: Numbers, shown: Sequence[TrainedModels]) -> Drawing:
    """Loss and BOS mass against steps, and against each other, while models learn; a line for each run."""
    loss, mass, path = [], [], []
    for name, label in trained(read, shown).items():
        steps, bos, losses = (read[name][f"curve_{what}"].values for what in ("step", "bos", "loss"))
        losses = np.maximum(losses, SMALLEST_LOSS)
        loss.append(Bundle(label, steps, losses, _medians(steps, losses)))
        mass.append(Bundle(label, steps, bos, _medians(steps, bos)))
        path.append(Bundle(label, bos, losses))
    bos_label = "weight on BOS, other rows"
    against_steps = Axis("", "step", "held-out loss", loss, "y"), Axis("", "step", bos_label, mass, "", (0, 1.05))
    panels = [*against_steps, Axis("", bos_label, "held-out loss", path, "y")]
    caption = f"""Loss and attention on held-out sequences during training, against steps (thin: each run; bold: the median, in
        which a finished run keeps its last value) and against each other; means over heads. {over_runs(read)}."""
    return Drawing("learning", curves([panels]), caption)


def _medians(steps: NDArray[Any], values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The step of each evaluation (the largest, from the runs that did not end in it), and the median over all runs."""
    last = np.maximum.accumulate(np.where(np.isnan(values), 0, np.arange(values.shape[1])), axis=1)
    # a run that is done keeps its last value, so that its end bends no median
    return np.nanmax(steps, axis=0), np.median(np.take_along_axis(values, last, axis=1), axis=0)


def losses_by_edit(read: Numbers, shown: Sequence[TrainedModels]) -> Drawing:
    """The loss of trained models under each edit, in the trigger's row and in the others; controls are averaged."""
    columns: dict[str, list[Mark]] = {"trigger row": [], "other rows": []}
    for label, rows, edit, loss in losses_under_edits(read, shown):
        columns[rows].append(Mark(edit, loss, label))
    figure = points(columns, "mean squared error of the output (log scale)", least=SMALLEST_LOSS)
    caption = f"""Loss under edits, on {_held_out(read)}, by rows. Controls: the same edits of other tokens, averaged. Means over
        {over_runs(read)}; bars: 95% intervals. Losses below {SMALLEST_LOSS:g} are drawn there."""
    return Drawing("interventions", figure, caption)


def losses_under_edits(
    read: Numbers, shown: Sequence[TrainedModels], factor: float = 1.0
) -> Iterator[tuple[str, str, str, Interval]]:
    """Yield model, rows, edit and its loss times a factor, mean over runs; controls of one kind are averaged."""
    for (name, label), (rows, title) in itertools.product(trained(read, shown).items(), ROW_TITLES.items()):
        losses = factor * read[name]["edited_loss"].sel(error_rows=rows).transpose("edit", "run").values
        kinds: dict[str, list[int]] = {}
        for number, edit in enumerate(read[name]["edit"].values):
            kind = OTHER_KEYS if edit.startswith("key ") else OTHER_VALUES if edit.startswith("value ") else str(edit)
            kinds.setdefault(kind, []).append(number)
        for kind, chosen in kinds.items():
            yield label, title, kind, read.interval(losses[chosen].mean(axis=0))


def edited_losses(read: Numbers, shown: Sequence[TrainedModels]) -> list[Row]:
    """The loss of trained models under each edit of BOS and its controls, in millionths."""
    losses = losses_under_edits(read, shown, MILLION)
    return [Row(f"{label}, {edit}", "edits", f"loss, {rows} (millionths)", loss) for label, rows, edit, loss in losses]


@from_results
def neutral_edit(read: Numbers, shown: Sequence[TrainedModels]) -> tuple[bool, str]:
    """Return the identity that adding 0 to BOS's logit changes no loss by more than float32 rounds, in any run and rows."""
    losses = [read.data(name)["edited_loss"] for name in trained(read, shown)]
    largest = max(np.abs(loss.sel(edit=IDENTITY) - loss.sel(edit=NO_EDIT)).max().item() for loss in losses)
    limit = float(np.finfo(np.float32).eps) * max(float(loss.sel(edit=NO_EDIT).max()) for loss in losses)
    return largest <= limit, f"largest change of a loss: {largest:.2g} (rounding: {limit:.2g})"


def counted_heads(read: Numbers, sizes: Mapping[str, Sequence[TrainedModels]]) -> Drawing:
    """The number of heads that sink, against the lowest mass of a sink. sizes: model size -> (softmax, ReLU)."""
    config, panels = read.settings, []
    for size, (softmax, relu) in sizes.items():
        if softmax.name not in read or relu.name not in read:
            continue
        lines = []
        shown = {"softmax": (softmax, "share"), "ReLU, share": (relu, "share"), "ReLU, weight": (relu, "weight")}
        for name, (training, kind) in shown.items():
            masses = by_head(read[training.name], kind)
            defined = np.isfinite(masses).all(axis=(1, 2))
            many = np.stack([np.where(defined, (masses >= least).sum(axis=(1, 2)), np.nan) for least in LEAST])
            lines.append(Line(name, LEAST, [*intervals.intervals(many, seed=config.seed)]))
        total = int(np.prod(masses.shape[1:]))
        panels.append(Panel(f"{size}: {total} heads", "heads that sink", lines, top=float(total)))
    if not panels:
        raise Absent("softmax and ReLU have not both run at any size")
    caption = f"""Number of heads whose mean mass on BOS, in the other rows, is at least the number across; the summary uses
        {config.sinks:g}. Bands: 95% intervals over {config.seeds} runs."""
    figure = line_figure([panels], "smallest mean mass on BOS of a head that sinks", legend="above")
    return Drawing("sinking-heads", figure, caption)


def bos_by_head(read: Numbers, shown: Sequence[TrainedModels]) -> Drawing:
    """The mass on BOS in each layer and head, for each seed."""
    columns, flat = [], dict[str, list[NDArray[Any]]](share=[], weight=[])
    for name, label in trained(read, shown).items():
        data = read[name]
        heads = [f"{layer}.{head}" for layer, head in np.ndindex(data.sizes["layer"], data.sizes["head"])]
        columns.append(MapColumn(label, heads, "layer.head"))
        for kind, maps in flat.items():
            maps.append(by_head(data, kind).reshape(data.sizes["run"], -1).T)
    top = max(1.0, *(float(np.nanmax(mass)) for mass in flat["weight"]))
    panels = [MapRow(flat["share"], "share", limits=(0, 1)), MapRow(flat["weight"], "weight", limits=(0, top))]
    seeds = [str(seed) for seed in next(iter(read.trained.values()))["run"].values]
    caption = "Mean mass on BOS in the other rows, by layer, head and seed: as a share of the row, and as the weight."
    return Drawing("bos-by-head", grids(columns, panels, seeds, "seed", height=2.1), caption)
