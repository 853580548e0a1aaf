"""The loss of a sliding window with recomputation (Xiao et al. 2024): a token is predicted from only the last few tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.analysis import intervals
from sinkjax.report.section import Drawing
from sinkjax.studies.readings import Parts, Readings
from sinkjax.studies.readouts import read_measure
from sinkjax.studies.vocabulary import At, Computation, Contrast, F, FigureWord, Measure

if TYPE_CHECKING:
    import xarray

    from sinkjax.analysis.intervals import Interval
    from sinkjax.checkpoints.model import Model
    from sinkjax.studies.scope import Scope
    from sinkjax.studies.study import Batch

BIN = 8  # positions that share a point of a curve
LOST = "loss above that with all keys (nats)"


@Computation.define(variables=("nll",), prompts=F.control_prompts)
def recomputed_window(scope: Scope, model: Model, batch: Batch, size: int) -> xarray.Dataset:
    """The loss of each next token if the model reads only the last `size` tokens, with positions from 0.

    A window of prompts with a BOS begins with it too, as the model expects of any text, and then has one token less.

    Args:
        scope: The study's scope.
        model: The model.
        batch: The prompts.
        size: Tokens in the window.

    Returns:
        nll: float[prompt, position], NaN where fewer than `size` + 1 tokens precede the next one.
    """
    import xarray

    tokens = np.asarray(batch.tokens)
    nll = np.full(tokens.shape, np.nan)
    queries = np.arange(size, tokens.shape[1] - 1)
    rows = queries[:, None] + np.arange(1 - size, 2)  # the window of each query, and the token that it predicts
    if batch.study["bos"] != "none":
        rows[:, 0] = 0
    for number, (prompt, length) in enumerate(zip(tokens, batch.lengths, strict=True)):
        inside = queries < length - 1
        probe, lengths = sinkjax.Probe(nll=True), np.full(inside.sum(), size + 1, np.int32)
        found = sinkjax.sweep(model, prompt[rows[inside]], [sinkjax.compose()], probe=probe, lengths=lengths, progress=False)
        nll[number, queries[inside]] = found["nll"].values[0, :, size - 1]
    return xarray.Dataset({"nll": (("prompt", "position"), nll)})


def recomputed(read: Readings, measure: Measure, computation: str) -> NDArray:
    """A measure of the loss with recomputed windows: float[document]."""
    return read_measure(measure, read.scope, read.results[read.store(computation)].expand_dims("edit"))[0]


@Contrast.define(uncontrolled="the recomputed windows are the comparison")
def above_recomputed(read: Readings, measure: Measure, where: At, computation: str) -> Parts:
    """The loss under some conditions minus the loss with recomputed windows; the whole is the latter.

    Args:
        read: The stores.
        measure: The loss.
        where: The conditions.
        computation: The recomputed windows.
    """
    best = recomputed(read, measure, computation)
    lost = read.edited(measure, where)[: len(best)] - best
    label = f"{read.name(measure, where)} minus the same with recomputed windows, {read.where(where)}"
    return Parts(lost, None, best, None, "nats", label)


@Contrast.define(controlled=("kept",))
def undone(read: Readings, measure: Measure, harmed: At, kept: At, computation: str, matched: bool = True) -> Parts:
    """The part of a window's damage that some kept tokens undo; the whole is the difference from recomputed windows.

    Args:
        read: The stores.
        measure: The loss.
        harmed: A window.
        kept: The same window with some tokens kept.
        computation: The recomputed windows.
        matched: Whether `kept` is compared with its random controls.
    """
    best, controls = recomputed(read, measure, computation), read.controls(measure, kept) if matched else None
    worst = read.edited(measure, harmed)[: len(best)]
    random = None if controls is None else worst[: controls.shape[1]] - controls
    label = f"part of the damage that is undone, {read.where(kept)}"
    gain, exhausted = worst - read.edited(measure, kept)[: len(best)], read.exhausted(kept)
    return Parts(gain, random, worst - best, None, "nats", label, all_controls=exhausted)


@FigureWord.define()
def loss_by_position(read: Readings, conditions: At, computation: str) -> Drawing:
    """The loss along the text above the loss with all keys, in bins of positions, next to recomputed windows."""
    from sinkjax.report.figures.layers import Line, Panel, lines

    grid = read.scope.get(conditions)[0]
    points, data = read.points(grid), read.results[grid]["nll"].values[..., :-1]
    best = read.results[computation]["nll"].values[:, :-1]
    rows = {points[row].label: data[row] - data[0] for row in read.rows(conditions)}
    rows["recomputed window"] = best - data[0, : len(best)]
    found = [Line(name, *_binned(lost, read.scope.config.seed)) for name, lost in rows.items()]
    figure = lines([[Panel("", LOST, found, signed=True)]], "position of the query (0-based)", legend_above=True)
    caption = f"Loss above that with all keys, along the text, in bins of {BIN} positions; recomputed windows on fewer texts."
    return read.drawing("loss-by-position", figure, caption, grid, computation)


def _binned(lost: NDArray, seed: int) -> tuple[list[float], list[Interval]]:
    """Middle and mean of each bin whose positions are all defined, with an interval."""
    bins = lost.shape[-1] // BIN
    means = lost[:, : bins * BIN].reshape(len(lost), bins, BIN).mean(axis=-1)
    whole = np.flatnonzero(np.isfinite(means).all(axis=0))
    return (BIN * whole + (BIN - 1) / 2).tolist(), [*intervals.intervals(means[:, whole].T, seed=seed)]
