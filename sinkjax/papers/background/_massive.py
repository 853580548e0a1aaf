"""Massive activations by Sun et al.'s definition (2024, section 2), of which a hidden state is all positions of a prompt."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from numpy.typing import NDArray

from sinkjax import Capture, Probe, Site, Statistic
from sinkjax.analysis import metrics
from sinkjax.analysis.estimates import three_digits
from sinkjax.probes.statistics import View
from sinkjax.study import Measure, Numbers, Premise, Sweep, Unedited, percentage

RANKS = ("largest", "second", "third")  # activations of a hidden state that are kept, as in the paper's Fig. 4
STAGE_RATIO = 100.0  # a stage's activation over the median: a tenth of the paper's, as SmolLM2's first stage has 200 to 900
NOTE = """An activation is massive if |h| is above 100 and above 1,000 times the median |h| of its hidden state, all positions and
    dims of the prompt together, as in the code of Sun et al. 2024."""


def real(x: jax.Array, view: View, fill: float = 0) -> jax.Array:
    """x [B, T, d] with `fill` beyond each prompt's length."""
    return jnp.where(jnp.arange(x.shape[1])[None, :, None] < view.lengths[:, None, None], x, fill)


def largest(x: jax.Array, view: View) -> jax.Array:
    """The largest |h| of a prompt's whole hidden state, in descending order: [B, 3] from [B, T, d]."""
    return jax.lax.top_k(jnp.abs(real(x, view)).reshape(x.shape[0], -1), len(RANKS))[0]


def median(x: jax.Array, view: View) -> jax.Array:
    """The median |h| of a prompt's whole hidden state: [B] from [B, T, d]."""
    return jnp.nanmedian(jnp.abs(real(x, view, jnp.nan)).reshape(x.shape[0], -1), axis=-1)


STATES = Probe(  # the sizes of hidden states, all positions together, and of each position
    resid_max=True,
    extra=(
        Statistic("state_largest", Site.RESID, largest, ("prompt", "depth", "rank")),
        Statistic(metrics.STATE_MEDIAN, Site.RESID, median, ("prompt", "depth")),
    ),
)


def massive_prompts(position: int, noun: str = "prompts", asks: Probe = STATES, note: str = NOTE) -> Measure:
    """100 for a prompt that has a massive activation at a position after some layer, else 0.

    noun, asks, note: the name of a prompt, the medians of hidden states, and the definition on the page.
    """

    def of(data: xarray.Dataset) -> NDArray[Any]:
        return np.asarray(100.0 * (metrics.massive_activations(data, position)[..., 1:] == 1).any(axis=-1))

    return percentage(f"{noun} with a massive activation at position {position} (%)", of, asks, note=note, position=position)


def stages(inside: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return the first and the last index of every run of True, in order: from bool[layer]."""
    ends = np.flatnonzero(np.diff(np.concatenate([[False], inside, [False]]).astype(int)))
    return [(int(first), int(last) - 1) for first, last in ends.reshape(-1, 2)]


def massive(sweep: Sweep, position: int) -> Premise:
    """Return the premise that the largest |h| at a position is massive, in means over documents after some layer."""

    def test(read: Numbers) -> tuple[bool, str]:
        data = read.data(sweep.name).isel(edit=0)
        sizes = data["resid_max"].values[:, 1:, position].mean(axis=0)
        ratios = sizes / metrics.hidden_median(data)[:, 1:].mean(axis=0)
        layer = int(np.minimum(sizes / metrics.THRESHOLD, ratios / metrics.RATIO).argmax())
        return bool(sizes[layer] > metrics.THRESHOLD and ratios[layer] > metrics.RATIO), (
            f"largest |h| at position {position} is {three_digits(sizes[layer])} after layer {layer},"
            f" {three_digits(ratios[layer])} times the median; it must be above"
            f" {metrics.THRESHOLD:g} and {metrics.RATIO:,g} times the median"
        )

    return Premise(test)


def largest_dim(run: Unedited) -> int:
    """The dim of the first token's largest |h| after any layer, in the mean over prompts."""
    stream = run.data(Probe(capture=(Capture(Site.RESID, positions=(0,), name="stream"),)))["stream"].values[0, :, :, 0]
    return int(np.abs(stream).mean(axis=0).max(axis=0).argmax())
