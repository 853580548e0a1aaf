"""One dim dominates the first token's state, and keys lock in on it: computation, contrasts, lists and figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import intervals
from sinkjax.analysis.estimates import constant
from sinkjax.analysis.summary import Row
from sinkjax.report.section import Drawing
from sinkjax.studies.readings import Parts
from sinkjax.studies.readouts import HALF
from sinkjax.studies.vocabulary import Computation, Contrast, Described, F, FigureWord, Readings

if TYPE_CHECKING:
    import xarray

    from sinkjax.checkpoints.model import Model
    from sinkjax.studies.scope import Scope
    from sinkjax.studies.study import Batch

VARIABLES = (
    "after", "alignment", "before", "dim", "key_alignment", "mean", "other_alignment", "other_rows", "own_row", "positive", "top",
)  # fmt: skip
BEFORE, AFTER = "dominance ratio at position 0, before the norm", "dominance ratio at position 0, after the norm"
ALIGNED, POSITIVE = "cos(u_1, k_0), mean over heads", "queries with a positive score of key 0 (%)"
ORDINARY = "nothing is edited, and ordinary tokens are the comparison"
ROW = "|cos| of k_0 and its dominant dim's row of W_K"


@Computation.define(variables=VARIABLES, prompts=F.prompts)
def dominance_and_lock_in(scope: Scope, model: Model, batch: Batch, controls: int = F.controls) -> xarray.Dataset:
    """Dominance ratios by depth and position, and the alignment of queries and of rows of W_K with keys."""
    from sinkjax.papers.li._lock_in import measure

    rng, width = intervals.generator(scope.config.seed, "li/dominance rows"), model.config.width
    return measure(model, batch, rng.choice(width, min(controls, width), replace=False).tolist())


def formed(data: xarray.Dataset) -> slice:
    """Return the layers from the first one whose input has more than half of the largest mean dominance ratio at position 0."""
    ratio = data["before"].values[:, :-1, 0].mean(axis=0)
    return slice(int(np.argmax(ratio > HALF * ratio.max())), None)


def at_peaks(data: xarray.Dataset) -> tuple[NDArray, NDArray]:
    """Return both ratios, per prompt and position, in the state with the largest ratio before the norm: float[prompt,
    position]."""
    before, after = data["before"].values, data["after"].values
    peaks = np.where(np.isnan(before), -np.inf, before).argmax(axis=1)[:, None]
    first, second = (np.take_along_axis(ratio, peaks, axis=1)[:, 0] for ratio in (before, after))
    return first, second


def _above_ordinary(values: NDArray) -> NDArray:
    """Return the log of a ratio at position 0 divided by its median over the other positions: float[prompt]."""
    return np.asarray(np.log(values[:, 0]) - np.log(np.nanmedian(values[:, 1:], axis=1)))


@Contrast.define(uncontrolled=ORDINARY)
def dominates(read: Readings, computation: str) -> Parts:
    """The dominance ratio of the first token over an ordinary token's, each in the state where its own is largest.

    The whole is the largest possible ratio, the width, over an ordinary token's.
    """
    before, _ = at_peaks(read.results[read.store(computation)])
    label = "largest dominance ratio of the first token over that of an ordinary token"
    whole = np.log(read.scope.architecture.width) - np.log(np.nanmedian(before[:, 1:], axis=1))
    return Parts(_above_ordinary(before), None, whole, None, "log", label)


@Contrast.define(uncontrolled=ORDINARY)
def norm_keeps(read: Readings, computation: str) -> Parts:
    """Like `dominates`, after the norm that reads these states; the whole is the value before the norm."""
    before, after = map(_above_ordinary, at_peaks(read.results[read.store(computation)]))
    return Parts(after, None, before, None, "log", "the same ratio after the norm")


@Contrast.define()
def key_is_row(read: Readings, computation: str) -> Parts:
    """|cosine| of key 0 with the dominant dim's row of W_K, mean over key heads and the layers where one dim dominates.

    Controls are the rows of random dims. The whole is 1, for equal directions.
    """
    data = read.results[read.store(computation)]
    layers = formed(data)
    own, others = (data[name].values[..., layers, :].mean(axis=(-2, -1)) for name in ("own_row", "other_rows"))
    return Parts(own, others, np.ones_like(own), (0.0, 1.0), "", ROW, whole_range=(1.0, 1.0))


@Contrast.define(uncontrolled=ORDINARY)
def locks_in(read: Readings, computation: str) -> Parts:
    """Cosine of the queries' first singular direction with key 0 minus that with ordinary keys, mean over heads and layers.

    The whole is the distance of ordinary keys from 1, for equal directions.
    """
    data = read.results[read.store(computation)]
    layers = formed(data)
    own, others = (data[name].values[:, layers].mean(axis=(1, 2)) for name in ("alignment", "other_alignment"))
    label = "cos(u_1, k_0) minus cos(u_1, k_j) of ordinary keys"
    return Parts(own - others, None, 1 - others, (-1.0, 1.0), "", label, whole_range=(0.0, 2.0))


@Contrast.define(uncontrolled=ORDINARY)
def scores_are_positive(read: Readings, computation: str) -> Parts:
    """Queries with a positive score of key 0 in each layer's best-aligned head, minus the same for ordinary keys, in percent.

    The whole is what ordinary keys lack of 100%.
    """
    data = read.results[read.store(computation)]
    layers, keys = formed(data), data.sizes["key"] // 2 + 1
    best = data["key_alignment"].values[layers, :, :keys].argmax(axis=1)  # [layer, key]
    shares = 100 * data["positive"].values[:, layers, :, :keys]
    found = np.take_along_axis(shares, best[None, :, None], axis=2)[:, :, 0].mean(axis=1)  # [prompt, key]
    ordinary = np.nanmean(found[:, 1:], axis=1)
    label = f"{POSITIVE} minus that of ordinary keys, best-aligned head of each layer"
    return Parts(found[:, 0] - ordinary, None, 100 - ordinary, (0.0, 100.0), "percentage points", label)


@Described.define()
def largest_state(read: Readings, computation: str) -> list[Row]:
    """The first token's state with the largest mean ratio: both ratios and, after the norm, largest |x|, mean |x| and dim."""
    data = read.results[computation]
    depth = int(data["before"].values[..., 0].mean(axis=0).argmax())
    dim = np.bincount(data["dim"].values[:, depth]).argmax()
    found = {BEFORE: data["before"].values[:, depth, 0], AFTER: data["after"].values[:, depth, 0]}
    found |= {f"{name} |x| after the norm": data[key].values[:, depth] for name, key in (("largest", "top"), ("mean", "mean"))}
    label, series = _state(data, depth), "state with the largest ratio"
    rows = [Row(f"{label}, largest ratio", series, name, read.results.interval(values)) for name, values in found.items()]
    return [*rows, Row(f"{label}, largest ratio", series, "dim of the largest |x|", constant(float(dim)))]


@Described.define()
def of_layers(read: Readings, computation: str) -> list[Row]:
    """Return each number in every state that a layer reads."""
    data = read.results[computation]
    numbers = {
        BEFORE: data["before"].values[..., 0],
        AFTER: data["after"].values[..., 0],
        ALIGNED: data["alignment"].mean("head").values,
        POSITIVE: 100 * data["positive"].isel(key=0).mean("head").values,
        ROW: data["own_row"].mean("kv_head").values,
    }
    return [
        Row(_state(data, depth), "state that a layer reads", name, read.results.interval(values[:, depth]))
        for name, values in numbers.items()
        for depth in range(values.shape[1])
    ]


def _state(data: xarray.Dataset, depth: int) -> str:
    """Name the state at a depth by the layer that reads it."""
    return f"layer {depth}" if depth < data.sizes["layer"] else "final norm"


@FigureWord.define()
def lock_in_by_layer(read: Readings, computation: str) -> Drawing:
    """Dominance ratios and cosines against the layer, for the first token and for ordinary ones."""
    from sinkjax.report.figures import layers

    data = read.results[computation]
    ratios = {f"position 0, {when} the norm": data[when].values[..., 0] for when in ("before", "after")}
    ratios["an ordinary position, before the norm"] = np.nanmedian(data["before"].values[..., 1:], axis=-1)
    cosines = {"cos(u_1, k_0)": data["alignment"], "cos(u_1, k_j), ordinary keys": data["other_alignment"]}
    values = {name: array.mean("head").values for name, array in cosines.items()} | {ROW: data["own_row"].mean("kv_head").values}
    drawn = [
        [read.results.curve(name, range(curve.shape[-1]), curve) for name, curve in curves.items()] for curves in (ratios, values)
    ]
    grid = [[layers.Panel("", "max |x| / mean |x|", drawn[0], log=True)], [layers.Panel("", "cosine", drawn[1], signed=True)]]
    figure = layers.lines(grid, "layer that reads the state (0-based)")
    caption = """Dominance ratio of the first token and of an ordinary one (top), and cosines of keys with the queries' first
        singular direction u_1 and with the dominant dim's row of W_K (bottom), means over heads, by layer."""
    return read.drawing("lock-in-by-layer", figure, caption, computation)


@FigureWord.define()
def lock_in_by_head(read: Readings, computation: str) -> Drawing:
    """Alignment of each head against its share of positive scores, for key 0 and for another key."""
    from sinkjax.report.figures import scatter

    data = read.results[computation]
    other = data.sizes["key"] // 4
    share = 100 * data["positive"].mean("prompt").values
    clouds = [
        scatter.Cloud("key 0", data["alignment"].mean("prompt").values.ravel(), share[..., 0].ravel()),
        scatter.Cloud(f"key {other}", data["key_alignment"].values[..., other].ravel(), share[..., other].ravel()),
    ]
    limits = ((-1.02, 1.02), (-3, 103))
    figure = scatter.scatter({"": clouds}, "cos(u_1, k)", "queries with a positive score (%)", limits=limits)
    caption = """Each dot is a head: cosine of a key with the first singular direction of the head's queries, and the share
        of later queries with a positive score, for key 0 and for another key."""
    return read.drawing("lock-in-by-head", figure, caption, computation, bands=False)
