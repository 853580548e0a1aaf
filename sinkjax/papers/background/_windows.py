"""Attention of queries whose sliding window no longer includes key 0, and the dim of the stream that makes a key large."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.config_files.checks import MIN_QUERIES, refuse
from sinkjax.studies.known import Unedited, zero
from sinkjax.studies.scope import Layers, Placed, percentage
from sinkjax.studies.vocabulary import ALL, EditWord, Known, Measure, Place

if TYPE_CHECKING:
    import jax
    import xarray

    from sinkjax.probes.statistics import PairView, View
    from sinkjax.studies.scope import Scope

BEFORE, BEYOND = 0, 1  # entries of the axis "reach"
TOKENS: dict[str, int | slice | None] = {"first": 0, "later": slice(1, None), "all": None}
NOTE = """Two sets of queries are compared: those that no longer see key 0 in a layer with a window, and as many just before them.
    A number is the attention that a key receives from a set, as a mean over its queries and over the heads of a layer."""


@Place.define()
def windowed(scope: Scope) -> list[Placed]:
    """The layers with a sliding window.

    Raises:
        SinkjaxError: From `beyond` on, queries still see key 0 in one of them, or too few queries are left.
    """
    windows, beyond, length = scope.architecture.windows, scope.config.beyond, scope.config.length
    cells = tuple((number, None) for number, size in enumerate(windows) if size is not None)
    longest = max(size for size in windows if size is not None)
    refuse(beyond < longest, f"beyond is {beyond}, but the model has layers with a window of {longest} keys")
    few = f"beyond {beyond} leaves fewer than {MIN_QUERIES} queries to a length of {length} tokens"
    refuse(beyond + MIN_QUERIES > length, few)
    return [Placed(windowed(), "layers with a window", cells)]


def reach(beyond: int, **others: object) -> sinkjax.Probe:
    """Ask for the attention to each key before and beyond the window, and for the size of activations."""
    return sinkjax.Probe(resid_max=True, extra=(reaching(beyond),))


@functools.cache
def reaching(beyond: int) -> sinkjax.Statistic:
    """Mean attention to each key from the queries just before a position, and from the queries at and after it.

    Args:
        beyond: The position, int.

    Returns:
        The statistic [prompt, layer, reach, key]; its axis "reach" is (before, beyond).
    """
    import jax.numpy as jnp

    def counts(lengths: jax.Array) -> jax.Array:
        after = jnp.maximum(lengths - beyond, 0)
        return jnp.stack([jnp.minimum(after, beyond), after], axis=1)  # [B, 2]

    def sums(weights: jax.Array, view: PairView) -> jax.Array:
        rows, number = view.rows[None, :], counts(view.lengths)[:, :1]
        before, after = (rows < beyond) & (rows >= beyond - number), (rows >= beyond) & (rows < view.lengths[:, None])
        chosen = jnp.stack([before, after], axis=1)
        return jnp.einsum("BRQ,BHQS->BRS", chosen.astype(weights.dtype), weights, precision="highest") / weights.shape[1]

    def mean(found: jax.Array, lengths: jax.Array) -> jax.Array:
        return found / jnp.maximum(counts(lengths), 1)[..., None]

    return sinkjax.Statistic("reaching", sinkjax.Site.WEIGHTS, sums, ("prompt", "layer", "reach", "key"), mean)


@percentage(label="attention to key 0 just before position {beyond} (%)", asks=reach, note=NOTE)
def first_before(data: xarray.Dataset, beyond: int, layers: Layers = ALL) -> NDArray:
    """Attention to key 0 from the queries just before a position, mean over some layers and their heads."""
    return np.asarray(100 * data["reaching"].values[..., layers, BEFORE, 0].mean(axis=-1))


@percentage(label="attention to key 0 from position {beyond} on (%)", asks=reach, note=NOTE)
def first_beyond(data: xarray.Dataset, beyond: int, layers: Layers = ALL) -> NDArray:
    """Attention to key 0 from the queries at and after a position, mean over some layers and their heads."""
    return np.asarray(100 * data["reaching"].values[..., layers, BEYOND, 0].mean(axis=-1))


def later_keys(data: xarray.Dataset, layers: Layers) -> NDArray:
    """Attention of the queries beyond to each key except the first, mean over some layers: float[edit, prompt, key]."""
    return np.asarray(data["reaching"].values[..., layers, BEYOND, 1:].mean(axis=-2))


@percentage(label="attention to the strongest later key from position {beyond} on (%)", asks=reach, note=NOTE)
def strongest_beyond(data: xarray.Dataset, beyond: int, layers: Layers = ALL) -> NDArray:
    """Attention of the queries beyond a position to the key other than 0 that receives the most, mean over some layers."""
    return np.asarray(100 * later_keys(data, layers).max(axis=-1))


@Measure.define(label="largest |h| at the strongest later key", asks=reach, log=True)
def activation_of_strongest(data: xarray.Dataset, beyond: int, layers: Layers = ALL) -> NDArray:
    """Largest |h|, after any layer, of the key selected by `strongest_beyond`."""
    key = 1 + later_keys(data, layers).argmax(axis=-1)
    sizes = data["resid_max"].values.max(axis=-2)
    return np.asarray(np.take_along_axis(sizes, key[..., None], axis=-1)[..., 0])


# The edit: set one dim of the stream to its value at an ordinary token.


@functools.cache
def ordinary() -> sinkjax.Statistic:
    """Median of each dim over a prompt's positions except the first: prompt, depth, dim."""
    import jax.numpy as jnp

    def median(x: jax.Array, view: View) -> jax.Array:
        places = jnp.arange(x.shape[1])[None, :, None]
        return jnp.nanmedian(jnp.where((places > 0) & (places < view.lengths[:, None, None]), x, jnp.nan), axis=1)

    return sinkjax.Statistic("ordinary", sinkjax.Site.RESID, median, ("prompt", "depth", "dim"))


@Known.define(blank=lambda scope, _: np.zeros((scope.architecture.layers, scope.architecture.width)), of_edited=True)
def typical_stream(scope: Scope, run: Unedited) -> NDArray:
    """Each dim after each layer at an ordinary token, the median over later positions, mean over prompts: float[layer, width]."""
    found = run.data(sinkjax.Probe(extra=(ordinary(),)))["ordinary"].isel(edit=0)
    return np.asarray(found.mean("prompt").values[1:])


@Known.define(blank=zero, of_edited=True)
def largest_dim(scope: Scope, run: Unedited) -> int:
    """The dim of the first token's largest |h| after any layer, in the mean over prompts."""
    capture = sinkjax.Capture(sinkjax.Site.RESID, positions=(0,), name="stream")
    stream = run.data(sinkjax.Probe(capture=(capture,)))["stream"].values[0, :, :, 0]
    return int(np.abs(stream).mean(axis=0).max(axis=0).argmax())


@EditWord.define()
def made_ordinary(scope: Scope, tokens: object, random: bool = False) -> sinkjax.Edit:
    """Set one dim after every layer to its value at an ordinary token.

    Args:
        scope: Study scope with the known numbers `dim` and `typical`.
        tokens: "first", "later" (all but the first) or "all".
        random: Whether another dim, drawn at random, replaces the first token's largest one.
    """
    typical, dim = scope.known["typical"], scope.known["dim"]
    if random:
        dim = int(scope.random.choice(np.delete(np.arange(typical.shape[1]), dim)))
    chosen = np.zeros((len(typical), 1, typical.shape[1]), np.float32)  # not a selector, because labels name no known dim
    chosen[..., dim] = 1
    queries = TOKENS[scope.get(tokens)]
    return sinkjax.compose(
        sinkjax.edit("resid", "scale", 1 - chosen, queries=queries),
        sinkjax.edit("resid", "add", chosen * typical[:, None], queries=queries),
    )
