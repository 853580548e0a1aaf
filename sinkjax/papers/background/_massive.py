"""Massive activations by Sun et al.'s definition (2024, section 2), and edits of their dims."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.analysis import activations, intervals, metrics
from sinkjax.analysis.estimates import three_digits
from sinkjax.config_files.checks import refuse
from sinkjax.report.section import Drawing
from sinkjax.studies.known import Unedited, zero
from sinkjax.studies.readings import Parts, Readings
from sinkjax.studies.scope import percentage
from sinkjax.studies.vocabulary import Contrast, EditWord, F, FigureWord, Known, Measure, Premise, at

if TYPE_CHECKING:
    import jax
    import xarray

    from sinkjax.probes.statistics import View
    from sinkjax.studies.scope import Scope

SHOWN = ("largest", "second", "third")  # activations of a hidden state that are drawn, as in the paper's Fig. 4
SPARED = 10  # largest dims that no control sets


def real(x: jax.Array, view: View, fill: float = 0) -> jax.Array:
    """x [B, T, d] with `fill` beyond each prompt's length."""
    import jax.numpy as jnp

    return jnp.where(jnp.arange(x.shape[1])[None, :, None] < view.lengths[:, None, None], x, fill)


def largest(x: jax.Array, view: View) -> jax.Array:
    """The largest |h| of a prompt's whole hidden state, in descending order: [B, 3] from [B, T, d]."""
    import jax
    import jax.numpy as jnp

    return jax.lax.top_k(jnp.abs(real(x, view)).reshape(x.shape[0], -1), len(SHOWN))[0]


def median(x: jax.Array, view: View) -> jax.Array:
    """The median |h| of a prompt's whole hidden state: [B] from [B, T, d]."""
    import jax.numpy as jnp

    return jnp.nanmedian(jnp.abs(real(x, view, jnp.nan)).reshape(x.shape[0], -1), axis=-1)


def states(**others: object) -> sinkjax.Probe:
    """Ask for the sizes of hidden states, all positions together, and of each position."""
    made = sinkjax.Statistic("state_largest", sinkjax.Site.RESID, largest, ("prompt", "depth", "rank"))
    middle = sinkjax.Statistic(activations.STATE_MEDIAN, sinkjax.Site.RESID, median, ("prompt", "depth"))
    return sinkjax.Probe(resid_max=True, extra=(made, middle))


@percentage(
    label="prompts with a massive activation at position {position} (%)",
    asks=states,
    note="""An activation is massive if |h| is above 100 and above 1,000 times the median |h| of its hidden state, all positions
        and dims of the prompt together, as in the code of Sun et al. 2024.""",
)
def massive_prompts(data: xarray.Dataset, position: int) -> NDArray:
    """100 for a prompt that has a massive activation at a position after some layer, else 0."""
    return np.asarray(100.0 * (metrics.massive_activations(data, position)[..., 1:] == 1).any(axis=-1))


@Measure.define(label="median |h| of the hidden states", asks=states, log=True)
def median_activation(data: xarray.Dataset) -> NDArray:
    """Median |h| of a hidden state, mean over the outputs of all layers."""
    return np.asarray(metrics.hidden_median(data)[..., 1:].mean(axis=-1))


@Premise.define()
def massive(read: Readings, grid: str, position: object) -> tuple[bool, str]:
    """The first token's largest |h| is massive by the definition of Sun et al., in means over documents after some layer."""
    data, place = read.results[read.store(grid)].isel(edit=0), read.scope.get(position)
    sizes = data["resid_max"].values[:, 1:, place].mean(axis=0)
    ratios = sizes / metrics.hidden_median(data)[:, 1:].mean(axis=0)
    layer = int(np.minimum(sizes / activations.THRESHOLD, ratios / activations.RATIO).argmax())
    holds = sizes[layer] > activations.THRESHOLD and ratios[layer] > activations.RATIO
    return bool(holds), (
        f"largest |h| at position {place} is {three_digits(sizes[layer])} after layer {layer},"
        f" {three_digits(ratios[layer])} times the median; it must be above"
        f" {activations.THRESHOLD:g} and {activations.RATIO:,g} times the median"
    )


@Contrast.define(uncontrolled="nothing is edited")
def share_of_prompts(read: Readings, measure: Measure, grid: str) -> Parts:
    """A percentage of the prompts of the unedited model; the whole is all of them.

    Args:
        read: The stores.
        measure: 100 or 0 for each prompt.
        grid: The grid whose first condition is read.
    """
    found = read.raw(measure, read.store(grid), grid, ())[0]
    return Parts(found, None, np.full_like(found, 100.0), (0.0, 100.0), "percentage points", read.name(measure))


@Contrast.define(uncontrolled="nothing is edited")
def steady(read: Readings, late: Measure, early: Measure, typical: Measure, grid: str) -> Parts:
    """Change of a size from an early layer to a late one; the whole is its excess over a typical size at the early one.

    Args:
        read: The stores.
        late: The size in the late layer.
        early: The size in the early layer.
        typical: A typical size.
        grid: The grid whose first condition is read.
    """
    last, first, other = (np.log(read.raw(measure, read.store(grid), grid, ())[0]) for measure in (late, early, typical))
    label = f"{read.name(late, at(grid))} minus {read.name(early, at(grid))}"
    return Parts(last - first, None, first - other, None, "log", label)


# Which dims are edited.


@Known.define(blank=zero)
def first_massive(scope: Scope, run: Unedited) -> int:
    """The first layer whose output has a massive activation in most prompts, or, if none has, the largest |h|."""
    data = run.data(states()).isel(edit=0)
    sizes = data["state_largest"].values[..., 0]
    found = metrics.is_massive(sizes, metrics.hidden_median(data))[:, 1:].mean(axis=0) > 1 / 2
    return int(found.argmax() if found.any() else sizes[:, 1:].mean(axis=0).argmax())


@Known.define(blank=lambda scope, _: np.zeros((1, scope.architecture.layers, scope.architecture.width)))
def stream_at(scope: Scope, run: Unedited, position: object) -> NDArray:
    """The residual stream after each layer at a position: float[prompt, layer, dim]."""
    capture = sinkjax.Capture(sinkjax.Site.RESID, positions=(scope.get(position),), name="stream")
    return np.asarray(run.data(sinkjax.Probe(capture=(capture,)))["stream"].values[0, :, :, 0])


@EditWord.define()
def set_dims(scope: Scope, to: object, which: str = "largest", as_after: object = None) -> sinkjax.Edit:
    """Set some dims of a position to zero or to their mean over prompts.

    Args:
        scope: A scope with the known stream, the position and the number of dims.
        to: "zero" or "mean".
        which: "largest", "median" (in size) or "random" (none of the ten largest) dims.
        as_after: The layer whose output orders the dims by size; None: each layer has its own order.

    Raises:
        SinkjaxError: The model has too few dims.
    """
    stream, count = scope.get(F.stream), scope.config.dims
    L, width = stream.shape[1:]
    refuse(count + SPARED > width, f"dims {count} and {SPARED} more for the controls are more than the model's {width}")
    order = np.argsort(-np.abs(stream).mean(axis=0), axis=-1)
    order = order if as_after is None else np.repeat(order[[scope.get(as_after)]], L, axis=0)
    start = {"largest": 0, "median": (width - count) // 2}.get(which, 0)
    dims = order[:, start : start + count]
    if which == "random":
        dims = order[:, scope.random.choice(np.arange(SPARED, width), count, replace=False)]
    chosen = np.zeros((L, 1, width), np.float32)
    np.put_along_axis(chosen[:, 0], dims, 1, axis=-1)
    place = scope.config.position
    zero = sinkjax.edit("resid", "scale", 1 - chosen, queries=place)
    if scope.get(to) == "zero":
        return zero
    return sinkjax.compose(zero, sinkjax.edit("resid", "add", chosen * stream.mean(axis=0)[:, None], queries=place))


@FigureWord.define()
def sizes_by_depth(read: Readings, grid: str, position: object) -> Drawing:
    """The largest activations of the hidden states by depth, their median, and the ratio of the two (Sun et al., Figs. 1, 4)."""
    from sinkjax.report.figures.layers import Line, Panel, lines

    data, place = read.results[grid].isel(edit=0), read.scope.get(position)
    ranked, middle = data["state_largest"].values, metrics.hidden_median(data)
    sizes = {name: ranked[..., rank] for rank, name in enumerate(SHOWN)} | {"median": middle}
    ratios = {"hidden state": ranked[..., 0] / middle, f"position {place}": data["resid_max"].values[..., place] / middle}
    panels, seed = [], read.scope.config.seed
    for label, rows in {"|h| in a hidden state": sizes, "largest |h| / median |h|": ratios}.items():
        drawn = [Line(name, range(row.shape[1]), [*intervals.intervals(row.T, seed=seed)]) for name, row in rows.items()]
        panels.append([Panel("", label, drawn, True)])
    caption = """Top: the three largest and the median |h| of a prompt's hidden state, all positions together. Bottom: the largest
        over the median."""
    return read.drawing("sizes-by-depth", lines(panels, "depth (0: embedding, l + 1: after layer l)"), caption, grid)
