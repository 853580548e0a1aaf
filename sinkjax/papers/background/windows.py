"""background/windows: where queries look in layers with a sliding window once the first token has left it.

The question is Xiao et al.'s (2024), asked of a model that was trained with windows. The edit sets the dim that holds the massive
activation to its value at an ordinary token; controls set random dims likewise.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from numpy.typing import NDArray

from sinkjax import Edit, Probe, Site, Statistic, edit
from sinkjax.config_files.checks import MIN_QUERIES, refuse
from sinkjax.papers._shared import mean_weight
from sinkjax.papers.background._massive import largest_dim
from sinkjax.papers.background.massive import set_dims
from sinkjax.probes.statistics import PairView, View
from sinkjax.study import *
from sinkjax.study import Inputs, typical_activation

BEFORE, BEYOND = 0, 1  # entries of the axis "reach"
TOKENS: dict[str, int | slice | None] = {"first": 0, "later": slice(1, None), "all": None}


@dataclass(frozen=True, kw_only=True)
class Settings(Controlled):
    length: int = 768
    prompts: int = 12
    bos: Literal["model", "tokenizer", "none"] | int = "model"
    control_prompts: int = 8
    beyond: int = 512
    """first position whose queries no longer see key 0 in layers with a window"""


def study(lab: Lab, s: Settings) -> None:
    """Layers with a sliding window."""
    lab.needs("sliding windows")
    layers = windowed(lab.architecture.windows or (), s)
    before, after, strongest = (make(s.beyond, layers) for make in (first_before, first_beyond, strongest_beyond))
    size, nll = activation_of_strongest(s.beyond, layers), loss(s.beyond)
    columns = (strongest, before, after, size, nll)

    dim = lab.donor("dim", largest_dim, 0, of_edited=True)
    typical = lab.donor("typical", typical_stream, np.zeros((lab.layers, lab.architecture.width)), of_edited=True)

    def another_dim(rng: np.random.Generator, case: Layers) -> Edit:
        return made_ordinary(case["tokens"], int(rng.choice(np.delete(np.arange(typical.shape[1]), dim))), typical)

    edits = {ALL.at(tokens=tokens): made_ordinary(tokens, dim, typical) for tokens in TOKENS}
    edited = lab.sweep("edited", edits, columns, another_dim, inputs="joined")
    lab.sweep("without", None, columns, inputs="joined", bos="none", title="without BOS")
    lab.noop(edit("resid", "scale", 1.0, queries=0), inputs=Inputs("joined"))

    first, later, every = (edited.at(tokens=tokens) for tokens in TOKENS)
    massive = reaches(largest_activation(0), edited, MASSIVE_SIZE)
    xiao, sun = "ours, on Xiao et al. 2024, section 3.1", "ours, on Sun et al. 2024, section 4"
    lab.claim("as-much", xiao, unedited(before, edited, minus=strongest), stays=True)
    lab.claim("large", sun, unedited(size, edited, minus=typical_activation()))
    lab.claim("needs", sun, effect(strongest, later), massive, sign=-1, took=WRITTEN)
    lab.claim("loss", "ours, on Sun et al. 2024, Table 3", effect(nll, later), massive, took=WRITTEN)
    beside = [effect(nll, where, controls=False) for where in (first, every)]
    lab.claim("first", xiao, effect(strongest, first, controls=False), massive, beside, stays=True, took=WRITTEN)

    lab.draw(by_layer, [partial(make, s.beyond) for make in (first_before, first_beyond, strongest_beyond)], conditions=[later])
    lab.draw(dots, strongest, nll, over=edited)


def windowed(windows: tuple[int | None, ...], s: Settings) -> Layers:
    """Return the layers with a sliding window.

    Raises:
        SinkjaxError: From `beyond` on, queries still see key 0 in one of them, or too few queries are left.
    """
    longest = max(size for size in windows if size is not None)
    refuse(s.beyond < longest, f"beyond is {s.beyond}, but the model has layers with a window of {longest} keys")
    few = f"beyond {s.beyond} leaves fewer than {MIN_QUERIES} queries to a length of {s.length} tokens"
    refuse(s.beyond + MIN_QUERIES > s.length, few)
    return Layers("layers with a window", tuple(number for number, size in enumerate(windows) if size is not None))


# Attention of queries whose window no longer includes key 0, and of as many just before them.

NOTE = """Two sets of queries are compared: those that no longer see key 0 in a layer with a window, and as many just before them.
    A number is the attention that a key receives from a set, as a mean over its queries and over the heads of a layer."""


@functools.cache
def reaching(beyond: int) -> Statistic:
    """Ask for the mean attention to each key from the queries just before a position, and from the queries at and after it.

    Returns:
        The statistic [prompt, layer, reach, key]; its axis "reach" is (before, beyond).
    """

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

    return Statistic("reaching", Site.WEIGHTS, sums, ("prompt", "layer", "reach", "key"), mean)


def first_before(beyond: int, layers: Layers = ALL, reach: int = BEFORE) -> Measure:
    """Attention to key 0 from the queries just before a position (or, BEYOND, at and after it), mean over layers and heads."""

    queries = f"just before position {beyond}" if reach == BEFORE else f"from position {beyond} on"
    name = f"attention to key 0 {queries} (%){layers.suffix}"
    return mean_weight(name, asked(beyond), "reaching", (layers.index, reach, 0), note=NOTE)


first_beyond = partial(first_before, reach=BEYOND)


def strongest_beyond(beyond: int, layers: Layers = ALL) -> Measure:
    """Attention of the queries beyond a position to the key other than 0 that receives the most, mean over some layers."""
    name = f"attention to the strongest later key from position {beyond} on (%){layers.suffix}"
    return percentage(name, lambda data: 100 * later_keys(data, layers).max(axis=-1), asked(beyond), note=NOTE)


def activation_of_strongest(beyond: int, layers: Layers = ALL) -> Measure:
    """Largest |h|, after any layer, of the key selected by `strongest_beyond`."""

    def of(data: xarray.Dataset) -> NDArray[Any]:
        key = 1 + later_keys(data, layers).argmax(axis=-1)
        return np.asarray(np.take_along_axis(data["resid_max"].values.max(axis=-2), key[..., None], axis=-1)[..., 0])

    return Measure(f"largest |h| at the strongest later key{layers.suffix}", of, asked(beyond), log=True)


def later_keys(data: xarray.Dataset, layers: Layers) -> NDArray[Any]:
    """Attention of the queries beyond to each key except the first, mean over some layers: float[edit, prompt, key]."""
    return np.asarray(data["reaching"].values[..., layers.index, BEYOND, 1:].mean(axis=-2))


def asked(beyond: int) -> Probe:
    """Ask for the attention to each key before and beyond the window, and for the size of activations."""
    return Probe(resid_max=True, extra=(reaching(beyond),))


# The edit: one dim of the stream gets its value at an ordinary token.


def median(x: jax.Array, view: View) -> jax.Array:
    """Median of each dim over a prompt's positions except the first: [B, d] from [B, T, d]."""
    places = jnp.arange(x.shape[1])[None, :, None]
    return jnp.nanmedian(jnp.where((places > 0) & (places < view.lengths[:, None, None]), x, jnp.nan), axis=1)


ORDINARY = Probe(extra=(Statistic("ordinary", Site.RESID, median, ("prompt", "depth", "dim")),))


def typical_stream(run: Unedited) -> NDArray[Any]:
    """Each dim after each layer at an ordinary token, the median over later positions, mean over prompts: float[layer, width]."""
    return np.asarray(run.data(ORDINARY)["ordinary"].isel(edit=0).mean("prompt").values[1:])


def made_ordinary(tokens: str, dim: int, typical: NDArray[Any]) -> Edit:
    """Set one dim after every layer to its value at an ordinary token, at the first, the later or all tokens."""
    return set_dims(typical[None], np.full((len(typical), 1), dim), "mean", TOKENS[tokens], None)
