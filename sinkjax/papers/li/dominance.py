"""li/dominance: one dim dominates the first token's state, the norm keeps it, and keys lock in on it (Li et al. 2026, Table 1).

Nothing is edited. The first token is compared with ordinary tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import xarray
from numpy.typing import NDArray

from sinkjax.analysis import intervals
from sinkjax.analysis.estimates import constant
from sinkjax.analysis.summary import Row
from sinkjax.checkpoints.model import Model
from sinkjax.papers.li._lock_in import measure
from sinkjax.report.figures.dots import Cloud, scatter
from sinkjax.report.figures.lines import Panel, lines
from sinkjax.report.section import Drawing
from sinkjax.study import HALF, Batch, Calculation, Controlled, Lab, Numbers, Parts, from_results

VARIABLES = (
    "after", "alignment", "before", "dim", "key_alignment", "mean", "other_alignment", "other_rows", "own_row", "positive", "top",
)  # fmt: skip
BEFORE, AFTER = "dominance ratio at position 0, before the norm", "dominance ratio at position 0, after the norm"
ALIGNED, POSITIVE = "cos(u_1, k_0), mean over heads", "queries with a positive score of key 0 (%)"
ORDINARY = "nothing is edited, and ordinary tokens are the comparison"
ROW = "|cos| of k_0 and its dominant dim's row of W_K"


@dataclass(frozen=True, kw_only=True)
class Settings(Controlled):
    """The shared settings."""


def study(lab: Lab, s: Settings) -> None:
    """Dominance of one dim, and the lock-in of keys on it."""
    lab.needs("keys without a LayerNorm", "norm", "RMSNorm", "pre-norm")
    lab.needs("embedding without positions", "scores without positions", "scores without a kernel")
    compute = partial(with_random_rows, s)
    of = lab.calculate("dominance", compute, VARIABLES, {"with_random_rows": s.controls}, s.prompts)

    source, table, lock_in = "Li et al. 2026, dimension disparity", "Li et al. 2026, Table 1", "Li et al. 2026, lock-in"
    lab.claim("ratio", source, dominates(of))
    lab.claim("norm", table, norm_keeps(of))
    lab.describe("table", table, lambda read: largest_state(read, of))
    lab.claim("row", lock_in, key_is_row(of))
    lab.claim("lock-in", lock_in, locks_in(of))
    lab.claim("positive", lock_in, scores_are_positive(of))
    lab.describe("layers", source, lambda read: of_layers(read, of))
    lab.draw(by_layer, of)
    lab.draw(by_head, of)


def with_random_rows(s: Settings, model: Model, batch: Batch) -> xarray.Dataset:
    """Dominance ratios by depth and position, and the alignment of queries and of rows of W_K, also random ones, with keys."""
    rng, width = intervals.generator(s.seed, "li/dominance rows"), model.config.width
    return measure(model, batch, rng.choice(width, min(s.controls, width), replace=False).tolist())


def formed(data: xarray.Dataset) -> slice:
    """Return the layers from the first one whose input has more than half of the largest mean dominance ratio at position 0."""
    ratio = data["before"].values[:, :-1, 0].mean(axis=0)
    return slice(int(np.argmax(ratio > HALF * ratio.max())), None)


def at_peaks(data: xarray.Dataset) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return both ratios, per prompt and position, in the state with the largest ratio before the norm: float[prompt,
    position]."""
    before, after = data["before"].values, data["after"].values
    peaks = np.where(np.isnan(before), -np.inf, before).argmax(axis=1)[:, None]
    first, second = (np.take_along_axis(ratio, peaks, axis=1)[:, 0] for ratio in (before, after))
    return first, second


def _above_ordinary(values: NDArray[Any]) -> NDArray[Any]:
    """Return the log of a ratio at position 0 divided by its median over the other positions: float[prompt]."""
    return np.asarray(np.log(values[:, 0]) - np.log(np.nanmedian(values[:, 1:], axis=1)))


@from_results
def dominates(read: Numbers, of: Calculation) -> Parts:
    """The dominance ratio of the first token over an ordinary token's, each in the state where its own is largest.

    The whole is the largest possible ratio, the width, over an ordinary token's.
    """
    before, _ = at_peaks(read.data(of.name))
    label = "largest dominance ratio of the first token over that of an ordinary token"
    whole = np.log(read.architecture.width) - np.log(np.nanmedian(before[:, 1:], axis=1))
    return Parts(_above_ordinary(before), None, whole, None, "log", label, uncontrolled=ORDINARY)


@from_results
def norm_keeps(read: Numbers, of: Calculation) -> Parts:
    """Like `dominates`, after the norm that reads these states; the whole is the value before the norm."""
    before, after = map(_above_ordinary, at_peaks(read.data(of.name)))
    return Parts(after, None, before, None, "log", "the same ratio after the norm", uncontrolled=ORDINARY)


@from_results
def key_is_row(read: Numbers, of: Calculation) -> Parts:
    """|cosine| of key 0 with the dominant dim's row of W_K, mean over key heads and the layers where one dim dominates.

    Controls are the rows of random dims. The whole is 1, for equal directions.
    """
    data = read.data(of.name)
    there = formed(data)
    own, others = (data[name].values[..., there, :].mean(axis=(-2, -1)) for name in ("own_row", "other_rows"))
    return Parts(own, others, np.ones_like(own), (0.0, 1.0), "", ROW)


@from_results
def locks_in(read: Numbers, of: Calculation) -> Parts:
    """Cosine of the queries' first singular direction with key 0 minus that with ordinary keys, mean over heads and layers.

    The whole is the distance of ordinary keys from 1, for equal directions.
    """
    data = read.data(of.name)
    there = formed(data)
    own, others = (data[name].values[:, there].mean(axis=(1, 2)) for name in ("alignment", "other_alignment"))
    label = "cos(u_1, k_0) minus cos(u_1, k_j) of ordinary keys"
    return Parts(own - others, None, 1 - others, (-1.0, 1.0), "", label, uncontrolled=ORDINARY)


@from_results
def scores_are_positive(read: Numbers, of: Calculation) -> Parts:
    """Queries with a positive score of key 0 in each layer's best-aligned head, minus the same for ordinary keys, in percent.

    The whole is what ordinary keys lack of 100%.
    """
    data = read.data(of.name)
    there, keys = formed(data), data.sizes["key"] // 2 + 1
    best = data["key_alignment"].values[there, :, :keys].argmax(axis=1)  # [layer, key]
    shares = 100 * data["positive"].values[:, there, :, :keys]
    found = np.take_along_axis(shares, best[None, :, None], axis=2)[:, :, 0].mean(axis=1)  # [prompt, key]
    ordinary = np.nanmean(found[:, 1:], axis=1)
    label = f"{POSITIVE} minus that of ordinary keys, best-aligned head of each layer"
    return Parts(found[:, 0] - ordinary, None, 100 - ordinary, (0.0, 100.0), "percentage points", label, uncontrolled=ORDINARY)


def largest_state(read: Numbers, of: Calculation) -> list[Row]:
    """The first token's state with the largest mean ratio: both ratios and, after the norm, largest |x|, mean |x| and dim."""
    data = read.data(of.name)
    depth = int(data["before"].values[..., 0].mean(axis=0).argmax())
    dim = np.bincount(data["dim"].values[:, depth]).argmax()
    found = {BEFORE: data["before"].values[:, depth, 0], AFTER: data["after"].values[:, depth, 0]}
    found |= {f"{name} |x| after the norm": data[key].values[:, depth] for name, key in (("largest", "top"), ("mean", "mean"))}
    label, series = _state(data, depth), "state with the largest ratio"
    rows = [Row(f"{label}, largest ratio", series, name, read.interval(values)) for name, values in found.items()]
    return [*rows, Row(f"{label}, largest ratio", series, "dim of the largest |x|", constant(float(dim)))]


def of_layers(read: Numbers, of: Calculation) -> list[Row]:
    """Return each number in every state that a layer reads."""
    data = read.data(of.name)
    numbers = {
        BEFORE: data["before"].values[..., 0],
        AFTER: data["after"].values[..., 0],
        ALIGNED: data["alignment"].mean("head").values,
        POSITIVE: 100 * data["positive"].isel(key=0).mean("head").values,
        ROW: data["own_row"].mean("kv_head").values,
    }
    return [
        Row(_state(data, depth), "state that a layer reads", name, read.interval(values[:, depth]))
        for name, values in numbers.items()
        for depth in range(values.shape[1])
    ]


def _state(data: xarray.Dataset, depth: int) -> str:
    """Name the state at a depth by the layer that reads it."""
    return f"layer {depth}" if depth < data.sizes["layer"] else "final norm"


def by_layer(read: Numbers, of: Calculation) -> Drawing:
    """Dominance ratios and cosines against the layer, for the first token and for ordinary ones."""
    data = read.data(of.name)
    ratios = {f"position 0, {when} the norm": data[when].values[..., 0] for when in ("before", "after")}
    ratios["an ordinary position, before the norm"] = np.nanmedian(data["before"].values[..., 1:], axis=-1)
    cosines = {"cos(u_1, k_0)": data["alignment"], "cos(u_1, k_j), ordinary keys": data["other_alignment"]}
    values = {name: array.mean("head").values for name, array in cosines.items()} | {ROW: data["own_row"].mean("kv_head").values}
    drawn = [[read.curve(name, range(curve.shape[-1]), curve) for name, curve in curves.items()] for curves in (ratios, values)]
    grid = [[Panel("", "max |x| / mean |x|", drawn[0], log=True)], [Panel("", "cosine", drawn[1], signed=True)]]
    figure = lines(grid, "layer that reads the state (0-based)")
    caption = "Dominance ratios (top); cosines of keys with u_1 of the queries and with the dominant dim's row of W_K (bottom)."
    return read.drawing("lock-in-by-layer", figure, caption, of.name)


def by_head(read: Numbers, of: Calculation) -> Drawing:
    """Alignment of each head against its share of positive scores, for key 0 and for another key."""
    data = read.data(of.name)
    other = data.sizes["key"] // 4
    share = 100 * data["positive"].mean("prompt").values
    clouds = [
        Cloud("key 0", data["alignment"].mean("prompt").values.ravel(), share[..., 0].ravel()),
        Cloud(f"key {other}", data["key_alignment"].values[..., other].ravel(), share[..., other].ravel()),
    ]
    limits = ((-1.02, 1.02), (-3, 103))
    figure = scatter({"": clouds}, "cos(u_1, k)", "queries with a positive score (%)", limits=limits)
    caption = "Each dot is a head: cosine of a key with u_1 of its queries, and the share of later queries with a positive score."
    return read.drawing("lock-in-by-head", figure, caption, of.name, bands=False)
