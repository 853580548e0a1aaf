"""The error of activations that are rounded to 8 bits, with one scale for a tensor or for each token (Bondarenko et al. 2023)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.papers.background._massive import real
from sinkjax.studies.scope import Layers, percentage
from sinkjax.studies.vocabulary import ALL

if TYPE_CHECKING:
    import jax
    import xarray

    from sinkjax.probes.statistics import View

STEPS = 127  # a signed 8-bit number has so many on either side of zero
STREAM, ROWS, NEURONS = "stream_error", "stream_row_error", "neuron_error"
SCALES = {STREAM: (1, 2), ROWS: (2,), NEURONS: (1, 2)}  # the axes of [prompt, position, dim] that share a scale


@functools.cache
def rounding_error(axes: tuple[int, ...]) -> Callable[[jax.Array, View], jax.Array]:
    """||round(x / s) s - x|| / ||x|| of each position, s = max |x| / 127 over `axes`: [B, T] from [B, T, D]; 0 for zeros."""

    def error(x: jax.Array, view: View) -> jax.Array:
        import jax.numpy as jnp

        top = jnp.abs(real(x, view)).max(axis=axes, keepdims=True)
        scale = jnp.where(top > 0, top, 1) / STEPS
        lost = jnp.sqrt(jnp.square(jnp.round(x / scale) * scale - x).sum(axis=-1))
        size = jnp.sqrt(jnp.square(x).sum(axis=-1))
        return lost / jnp.where(size > 0, size, 1)

    return error


def asked(of: str) -> Callable[..., sinkjax.Probe]:
    """A probe that asks for the error at one site."""

    def probe(**others: object) -> sinkjax.Probe:
        site, layers = (sinkjax.Site.NEURON, "layer") if of == NEURONS else (sinkjax.Site.RESID, "depth")
        return sinkjax.Probe(extra=(sinkjax.Statistic(of, site, rounding_error(SCALES[of]), ("prompt", layers, "position")),))

    return probe


def mean_error(data: xarray.Dataset, of: str, position: int, layers: list[int]) -> NDArray:
    """Relative error in percent, mean over all tokens except one and over the outputs of some layers: float[edit, prompt]."""
    errors = 100 * np.nanmean(np.delete(data[of].values, position, axis=-1), axis=-1)
    written = errors[..., 1:] if "depth" in data[of].dims else errors
    return np.asarray(written[..., layers].mean(axis=-1))


NOTE = f"""Error: norm of the rounding error with {2 * STEPS + 1} even steps, over the norm of the token's vector, mean over the
    other tokens. A tensor holds one prompt."""
an_error = partial(percentage, note=NOTE)


@an_error(label="stream, one scale a tensor (%)", asks=asked(STREAM))
def tensor_error(data: xarray.Dataset, position: int, layers: Layers = ALL) -> NDArray:
    """Error of the residual stream with one scale for all tokens of a prompt."""
    return mean_error(data, STREAM, position, layers)


@an_error(label="stream, one scale a token (%)", asks=asked(ROWS))
def token_error(data: xarray.Dataset, position: int, layers: Layers = ALL) -> NDArray:
    """Error of the residual stream with one scale per token."""
    return mean_error(data, ROWS, position, layers)


@an_error(label="MLP hidden units, one scale a tensor (%)", asks=asked(NEURONS))
def neuron_error(data: xarray.Dataset, position: int, layers: Layers = ALL) -> NDArray:
    """Error of the MLP's hidden units with one scale for all tokens of a prompt."""
    return mean_error(data, NEURONS, position, layers)
