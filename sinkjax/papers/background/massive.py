"""background/massive: massive activations by Sun et al.'s definition, and zeros or means in their place (2024, Table 3).

The edits follow the first layer whose output meets the definition. Controls set as many random dims of the same position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkjax import Capture, Edit, Probe, Site, compose, edit
from sinkjax.analysis import intervals, metrics
from sinkjax.config_files.checks import refuse
from sinkjax.papers.background._massive import RANKS, STATES, massive, massive_prompts
from sinkjax.report.figures.lines import Line, Panel
from sinkjax.report.figures.lines import lines as line_figure
from sinkjax.report.section import Drawing
from sinkjax.study import *
from sinkjax.study import largest_elsewhere, without_bos

SPARED = 10  # largest dims that no control sets


@dataclass(frozen=True, kw_only=True)
class Settings(Controlled, Sinks, Mapped):
    position: int = 0
    """position whose activations are set"""
    dims: int = 2
    """how many of the largest dims are set"""
    layer_prompts: int = 16
    """number of prompts for setting the activations after each layer in turn"""


def study(lab: Lab, s: Settings) -> None:
    """Massive activations, set to zero or to their mean."""
    L, width, here = lab.layers, lab.architecture.width, s.position
    refuse(s.dims + SPARED > width, f"dims {s.dims} and {SPARED} more for the controls are more than the model's {width}")
    size, middle, elsewhere, found = largest_activation(here), median_activation(), largest_elsewhere(here), massive_prompts(here)
    columns = (loss(), sink_rate(here, s.eps), elsewhere, found)

    forms = lab.value("forms", first_massive, 0)
    stream = lab.donor("stream", partial(stream_at, here), np.zeros((1, L, width)), of_edited=True)
    order = np.argsort(-np.abs(stream).mean(axis=0), axis=-1)  # [layer, rank]: each layer's dims by size
    formed = np.repeat(order[[forms]], L, axis=0)
    at = layer(forms, "the layer in which it forms")
    after = largest_activation(here, Layers("the layers from the one in which it forms", tuple(range(forms, L))))
    everywhere = np.tile(by_size(stream), (L, 1))

    def put(to: str, dims: NDArray[Any], place: Layers) -> Edit:
        return set_dims(stream, dims, to, here, place.layers)

    def random(rng: np.random.Generator, dims: NDArray[Any]) -> NDArray[Any]:
        return dims[:, rng.choice(np.arange(SPARED, width), s.dims, replace=False)]

    def random_dims(rng: np.random.Generator, case: Layers) -> Edit:
        return put(case["to"], random(rng, formed), case)

    top, ways = slice(s.dims), ("zero", "mean")
    edits = {at.at(to=to): put(to, formed[:, top], at) for to in ways}
    once = lab.sweep("set", edits, columns, random_dims, title="largest dims")
    zeros = {ALL: put("zero", everywhere[:, top], ALL)}
    held = lab.sweep("held", zeros, columns, lambda rng, case: put("zero", random(rng, everywhere), ALL), title="held at zero")
    usual = formed[:, (width - s.dims) // 2 :][:, top]
    ordinary = lab.sweep("median", {at: put("zero", usual, at)}, columns, title="dims of median size to zero")
    by_layers = []
    for to, title in (("zero", "each layer's largest dims to zero"), ("mean", "each layer's largest dims to their mean")):
        single = {one: put(to, order[:, top], one) for one in each(L)}
        by_layers.append(lab.sweep(f"{to}-by-layer", single, columns, prompts=s.layer_prompts, title=title))
    lab.noop(edit("resid", "scale", 1.0, queries=here))

    zero, mean = (once.at(to=to) for to in ways)
    paper, is_massive = "Sun et al. 2024", massive(once, here)
    beside = [unedited(size, once, minus=other) for other in (middle, elsewhere)]
    lab.claim("exists", f"{paper}, section 2, Fig. 1, Table 1", share_of_prompts(found, once), beside=beside)
    late, early = (largest_activation(here, one) for one in (layer(max(L - 3, 0)), at))
    lab.claim("constant", f"{paper}, section 2.1, Fig. 4", steady(late, early, middle, once), is_massive, stays=True)
    lab.claim("zero", f"{paper}, Table 3", effect(loss(), zero), is_massive, took=removed(after, zero))
    lab.claim("held", f"ours, on {paper}, Table 3", effect(loss(), held.every), is_massive, took=removed(after, held.every))
    lab.claim("mean", f"{paper}, Table 3", effect(loss(), mean), all_of(is_massive, without_bos(once)), stays=True, took=WRITTEN)
    lab.claim("median", f"{paper}, section 3", effect(loss(), ordinary.every), is_massive, stays=True, took=WRITTEN)

    lab.draw(sizes_by_depth, once, here)
    for sweep in by_layers:
        lab.draw(lines, loss(), sink_rate(here, s.eps), over=sweep)
    lab.draw(dots, loss(), over=once)
    lab.maps(zero, mean)


def first_massive(run: Unedited) -> int:
    """The first layer whose output has a massive activation in most prompts, or, if none has, the largest |h|."""
    data = run.data(STATES).isel(edit=0)
    sizes = data["state_largest"].values[..., 0]
    found = metrics.is_massive(sizes, metrics.hidden_median(data))[:, 1:].mean(axis=0) > 1 / 2
    return int(found.argmax() if found.any() else sizes[:, 1:].mean(axis=0).argmax())


def stream_at(position: int, run: Unedited) -> NDArray[Any]:
    """The residual stream after each layer at a position: float[prompt, layer, dim]."""
    capture = Capture(Site.RESID, positions=(position,), name="stream")
    return np.asarray(run.data(Probe(capture=(capture,)))["stream"].values[0, :, :, 0])


def by_size(stream: NDArray[Any]) -> NDArray[np.intp]:
    """The dims of a position, from the largest mean |h| after any layer to the smallest: int[dim]. stream: `stream_at` it."""
    return np.argsort(-np.abs(stream).mean(axis=0).max(axis=0))


def set_dims(
    stream: NDArray[Any], dims: NDArray[Any], to: str, queries: int | slice | None, layers: Sequence[int] | None
) -> Edit:
    """Set some dims of a position to zero or to their mean over prompts.

    Args:
        stream: `stream_at` the position.
        dims: int[layer, number], the dims of each layer.
        to: "zero" or "mean".
        queries: The position, or several.
        layers: The edited layers.
    """
    chosen = np.zeros((len(dims), 1, stream.shape[2]), np.float32)  # not a selector, because labels name no known dim
    np.put_along_axis(chosen[:, 0], dims, 1, axis=-1)
    put = partial(edit, "resid", queries=queries, layers=layers)
    zero = put(op="scale", value=1 - chosen)
    return zero if to == "zero" else compose(zero, put(op="add", value=chosen * stream.mean(axis=0)[:, None]))


def median_activation() -> Measure:
    """Median |h| of a hidden state, mean over the outputs of all layers."""
    name = "median |h| of the hidden states"
    return Measure(name, lambda data: np.asarray(metrics.hidden_median(data)[..., 1:].mean(axis=-1)), STATES, log=True)


@from_results
def share_of_prompts(read: Numbers, measure: Measure, sweep: Sweep) -> Parts:
    """Return a percentage of the prompts of the unedited model. No measurement is its whole."""
    values, why = read.first(measure, sweep), "nothing is edited"
    return Parts(values, None, None, (0.0, 100.0), "percentage points", measure.name, uncontrolled=why)


@from_results
def steady(read: Numbers, late: Measure, early: Measure, typical: Measure, sweep: Sweep) -> Parts:
    """Return the change of a size from an early layer to a late one; the whole is its early excess over a typical size."""
    last, first, other = (np.log(read.first(measure, sweep)) for measure in (late, early, typical))
    label, why = f"{late.name} minus {early.name}", "nothing is edited"
    return Parts(last - first, None, first - other, None, "log", label, uncontrolled=why)


def sizes_by_depth(read: Numbers, sweep: Sweep, position: int) -> Drawing:
    """Draw the largest activations of the hidden states by depth, their median, and the ratio of the two (Figs. 1, 4)."""
    data = read.data(sweep.name).isel(edit=0)
    ranked, middle = data["state_largest"].values, metrics.hidden_median(data)
    sizes = {name: ranked[..., rank] for rank, name in enumerate(RANKS)} | {"median": middle}
    ratios = {"hidden state": ranked[..., 0] / middle, f"position {position}": data["resid_max"].values[..., position] / middle}
    panels = []
    for label, rows in {"|h| in a hidden state": sizes, "largest |h| / median |h|": ratios}.items():
        means = {name: intervals.intervals(row.T, seed=read.settings.seed) for name, row in rows.items()}
        panels.append([Panel("", label, [Line(name, range(len(mean)), [*mean]) for name, mean in means.items()], True)])
    caption = "The three largest and the median |h| of a prompt's hidden state (top), and the largest over the median (bottom)."
    return read.drawing("sizes-by-depth", line_figure(panels, "depth (0: embedding, l + 1: after layer l)"), caption, sweep.name)
