"""background/compression: the entropy of the hidden states by depth, and the first token's MLP (Queipo-de-Llano et al. 2026).

Where the first token's massive activation emerges, the hidden states collapse to nearly one direction. The contrast is the MLP
output for that token, dropped in this layer; controls drop it for another token.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from numpy.typing import ArrayLike, NDArray

from sinkjax import Edit, Probe, Site, Statistic, drop_mlp, edit
from sinkjax.analysis import intervals, metrics
from sinkjax.analysis.summary import Row
from sinkjax.papers.background._massive import real
from sinkjax.probes.statistics import View
from sinkjax.report.figures.lines import Line, Panel
from sinkjax.report.figures.lines import lines as line_figure
from sinkjax.report.section import Drawing
from sinkjax.study import *
from sinkjax.study import Measure, Numbers, Selection, Sweep, from_results


@dataclass(frozen=True, kw_only=True)
class Settings(Controlled, Sinks, Mapped):
    position: int = 0
    """position whose MLP output is dropped"""


def study(lab: Lab, s: Settings) -> None:
    """Compression of the hidden states, and the first token's MLP."""
    lab.needs("MLP")
    early, middle, late = (entropy(part, s.position) for part in ("early", "middle", "late"))
    sink = sink_rate(s.position, s.eps)

    emerges = layer(lab.steepest("emerges", "resid_norm", s.position), "the layer in which it emerges")
    places = [emerges, ALL, *each(lab.layers)]

    def drop_other(rng: np.random.Generator, case: Layers) -> Edit:
        return drop_mlp(lab.random_position(rng, but=[s.position]), layers=case.layers)

    edits = {place: drop_mlp(s.position, layers=place.layers) for place in places}
    dropped = lab.sweep("dropped", edits, [middle, sink, mixing(), anisotropy(s.position)], drop_other)
    lab.noop(edit("mlp_out", "scale", 1.0, queries=s.position))

    where, paper = dropped[emerges], "Queipo-de-Llano et al. 2026"
    took = removed(largest_activation(s.position), where)  # the paper drops the MLP to take the massive activation away
    lab.claim("falls", f"{paper}, Fig. 1, section 5", unedited(early, dropped, minus=middle))
    lab.claim("rises", f"{paper}, Fig. 1, section 5", unedited(late, dropped, minus=middle))
    lab.claim("entropy", f"{paper}, section 4", effect(middle, where), took=took)
    sinks = is_sink(attention_to(s.position, lab.half), dropped, strongest_other_attention(s.position, lab.half))
    lab.claim("sink", f"{paper}, section 4", effect(sink, where), sinks, sign=-1, took=took)
    for name, of in (("entropy", entropy_of), ("sinks", sinks_of(s.position, s.eps))):
        lab.describe(f"norm-{name.removesuffix('s')}", f"{paper}, section 3", changes_with_norm(name, of, dropped, s.position))
    lab.identity("theorem", f"{paper}, Theorem 1", bounded_below(dropped))

    lab.draw(by_depth, s.position, s.eps, conditions=[where, dropped[ALL]])
    lab.draw(lines, middle, sink, over=dropped)
    lab.draw(dots, middle, sink, over=dropped)
    lab.maps(where, dropped[ALL])


# The spectrum of a prompt's hidden states X [T, d] and the quantities computed from it (Queipo-de-Llano et al. 2026, section 3).


EARLY, LATE = 0.2, 0.85  # shares of the depth between which states are compressed (Queipo-de-Llano et al., section 5)
SLACK = 1e-4  # p_1 may fall short of its bound by this share of the whole, because of rounding in float32


def _scaled(x: jax.Array, view: View) -> jax.Array:
    """x [B, T, d] over its largest |x|, so that squares stay in range; zeros beyond each prompt's length."""
    x = real(x, view)
    return x / jnp.abs(x).max(axis=(1, 2), keepdims=True)


def spectrum(x: jax.Array, view: View) -> jax.Array:
    """Shares p_j = sigma_j^2 / ||X||_F^2 of the squared singular values, in descending order: [B, T] from [B, T, d]."""
    x = _scaled(x, view)
    squares = jnp.maximum(jnp.linalg.eigvalsh(jnp.einsum("BTd,BSd->BTS", x, x, precision="highest"))[:, ::-1], 0)
    return squares / squares.sum(axis=-1, keepdims=True)


@functools.cache
def bound_by(position: int) -> Callable[[jax.Array, View], jax.Array]:
    """The lower bound on p_1 from a position's norm and its alignment with the others (Theorem 1, corollary): [B].

    M = ||x_k||^2, R = sum of ||x_i||^2 over the others, alpha R = sum of ||x_i||^2 cos^2(x_i, x_k):
    p_1 >= (M + alpha R) / (M + R).
    """

    def bound(x: jax.Array, view: View) -> jax.Array:
        x = _scaled(x, view)
        one = x[:, position]
        M = jnp.square(one).sum(axis=-1)
        along = jnp.square(jnp.einsum("BTd,Bd->BT", x, one, precision="highest")).sum(axis=-1) / M  # its own M included
        return along / jnp.square(x).sum(axis=(1, 2))

    return bound


def spectra(position: int) -> Probe:
    """Ask for the spectrum at each depth, the bound on its largest share, and norms."""
    shares = Statistic("spectrum", Site.RESID, spectrum, ("prompt", "depth", "rank"))
    return Probe(resid_norm=True, extra=(shares, Statistic("bound", Site.RESID, bound_by(position), ("prompt", "depth"))))


def matrix_entropy(shares: ArrayLike) -> NDArray[Any]:
    """-sum p log2 p over the last axis, in bits, with 0 log 0 = 0."""
    shares = np.asarray(shares, np.float64)
    return np.asarray(-(shares * np.log2(np.where(shares > 0, shares, 1))).sum(axis=-1))


def part_of_depth(values: NDArray[Any], part: str) -> NDArray[Any]:
    """The mean of float[..., depth] over the early, the middle or the late depths."""
    last = values.shape[-1] - 1
    first, end = int(np.ceil(EARLY * last)), int(LATE * last) + 1
    return np.asarray(values[..., {"early": slice(first), "middle": slice(first, end), "late": slice(end, None)}[part]].mean(-1))


NOTE = f"""Matrix entropy: -sum p log2 p over the shares p of the squared singular values of a prompt's hidden states, in bits: 0
    for a single direction. Middle depths: {EARLY:.0%} to {LATE:.0%} of all, as in the paper."""


def entropy(part: str, position: int) -> Measure:
    """Matrix entropy of the hidden states, mean over the early, the middle or the late depths.

    position: whose bound the probe computes beside the spectrum.
    """
    name = f"matrix entropy of the {part} depths (bits)"
    return Measure(name, lambda data: part_of_depth(entropy_of(data), part), spectra(position), unit="bits", note=NOTE)


def entropy_of(data: xarray.Dataset) -> NDArray[Any]:
    """Matrix entropy at each depth: float[..., depth]."""
    return matrix_entropy(data["spectrum"].values)


def anisotropy(position: int) -> Measure:
    """Share of the largest direction in the spectrum, mean over the middle depths."""

    def of(data: xarray.Dataset) -> NDArray[Any]:
        return part_of_depth(data["spectrum"].values[..., 0].astype(np.float64), "middle")

    return Measure("anisotropy p_1 of the middle depths", of, spectra(position), range=(0.0, 1.0))


def mixing() -> Measure:
    """Entropy of the attention rows, mean over layers, heads and queries."""

    def of(data: xarray.Dataset) -> NDArray[Any]:
        return np.asarray(np.nanmean(data["row_entropy"].values, axis=(-3, -2, -1)) / np.log(2))

    return Measure("mixing: mean entropy of attention rows (bits)", of, Probe(row_entropy=True), unit="bits")


def correlation(x: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
    """Pearson's r along the last axis, NaN where either is constant or there are fewer than three values."""
    if x.shape[-1] < 3:
        return np.full(x.shape[:-1], np.nan)
    x, y = x - x.mean(axis=-1, keepdims=True), y - y.mean(axis=-1, keepdims=True)
    size = np.sqrt((x**2).sum(axis=-1) * (y**2).sum(axis=-1))
    return np.asarray(np.divide((x * y).sum(axis=-1), size, out=np.full(x.shape[:-1], np.nan), where=size > 0))


def sinks_of(position: int, eps: float) -> Callable[[xarray.Dataset], NDArray[Any]]:
    """Return the function for the share of heads that sink on a position in each layer: float[..., layer]."""
    return lambda data: metrics.sink_rate(data, position, eps, per="layer")


@from_results
def changes_with_norm(
    read: Numbers, name: str, of: Callable[[xarray.Dataset], NDArray[Any]], sweep: Sweep, position: int
) -> list[Row]:
    """Return the correlation over layers of the changes of a position's norm with those of a quantity, in each prompt.

    Args:
        read: The results.
        name: Name of the quantity.
        of: Dataset -> the quantity at each depth or in each layer. A layer's goes with the stream that enters it.
        sweep: The sweep whose unedited model is read.
        position: The position.
    """
    data = read.data(sweep.name).isel(edit=0)
    norm, other = data["resid_norm"].values[..., position], of(data)
    r = correlation(np.diff(norm[:, : other.shape[-1]]), np.diff(other))
    measure = f"r of norm and {name} over {other.shape[-1] - 1} changes"
    return [Row("no edit", "no edit", measure, intervals.interval(r, seed=read.settings.seed))]


@from_results
def bounded_below(read: Numbers, sweep: Sweep) -> tuple[bool, str]:
    """Return the identity that the largest share of the spectrum is at least its bound, under every edit (Theorem 1)."""
    data = read.data(sweep.name)
    short = max(float((data["bound"] - data["spectrum"].isel(rank=0)).max()), 0.0)
    return short <= SLACK, f"largest shortfall of p_1 below its bound: {short:.2g}"


def by_depth(read: Numbers, position: int, eps: float, conditions: Sequence[Selection]) -> Drawing:
    """Draw entropy, anisotropy and mixing by depth, and the sink by layer, without an edit and under some conditions."""
    name = conditions[0].sweep.name
    rows = [0, *(read.rows(name)[case] for one in conditions for case in one.cases)]
    data, labels = read.data(name).isel(edit=rows), [read.conditions(name)[row].label for row in rows]
    panels = {
        "matrix entropy (bits)": entropy_of(data),
        "anisotropy p_1": data["spectrum"].values[..., 0],
        "mixing (bits)": np.nanmean(data["row_entropy"].values, axis=(-2, -1)) / np.log(2),
        f"heads that sink\non key {position} (%)": 100 * sinks_of(position, eps)(data),
    }
    grid = []
    for label, values in panels.items():
        means = intervals.intervals(values, axis=1, seed=read.settings.seed)  # [row, depth]
        grid.append([Panel("", label, [Line(name, range(len(row)), [*row]) for name, row in zip(labels, means, strict=True)])])
    caption = """Matrix entropy of a prompt's hidden states and share of their largest direction, by depth (l: the stream that
        enters layer l); entropy of attention rows and heads that sink, by layer."""
    return read.drawing("by-depth", line_figure(grid, "layer l, or depth l (0-based)", legend="above"), caption, name)
