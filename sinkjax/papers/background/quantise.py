"""background/quantise: the error that a massive activation causes in 8-bit activations (Bondarenko et al. 2023, Sun et al. 2024).

One scale for all tokens of a prompt is set by its largest value, so that a massive activation leaves few of the 255 steps to the
others. The error is measured only: the model runs in full precision. Controls make the same edit at another position.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from sinkjax import Edit, Probe, Site, Statistic, drop_mlp, edit, mask_key
from sinkjax.lab import *
from sinkjax.lab.measures import in_layers, layer_index
from sinkjax.papers.background._massive import real

if TYPE_CHECKING:
    import jax
    import xarray

    from sinkjax.probes.statistics import View

STEPS = 127  # a signed 8-bit number has so many on either side of zero
NOTE = f"""Error: norm of the rounding error with {2 * STEPS + 1} even steps, over the norm of the token's vector, mean over the
    other tokens. A tensor holds one prompt."""


@dataclass(frozen=True, kw_only=True)
class Settings(Controlled, Mapped):
    position: int = 0
    """position of the massive activation"""


def study(lab: Lab, s: Settings) -> None:
    """The error of activations that are rounded to 8 bits."""
    lab.needs("MLP")
    makes = [partial(make, s.position) for make in (tensor_error, token_error, neuron_error)]
    (tensor, token, neurons), size = (make() for make in makes), largest_activation(s.position)
    columns = (tensor, token, neurons, size)

    grows = layer(lab.steepest("grows", "resid_max", s.position), "the layer in which it grows")

    def drop_other(rng: np.random.Generator, case: Case) -> Edit:
        return drop_mlp(lab.random_position(rng, but=[s.position]), layers=case.place.layers)

    def mask_other(rng: np.random.Generator, case: Case) -> Edit:
        return mask_key(lab.random_position(rng, but=[s.position]))

    edits = {grows: drop_mlp(s.position, layers=grows.layers)}
    removed = lab.sweep("removed", edits, columns, drop_other, title="MLP dropped")
    masked = lab.sweep("masked", {ALL: mask_key(s.position)}, columns, mask_other, title="key masked")
    lab.noop(edit("mlp_out", "scale", 1.0, queries=s.position))

    beside = [unedited(tensor, removed, minus=token), effect(tensor, masked.every)]
    source, premise = "ours, on Bondarenko et al. 2023 and Sun et al. 2024", reaches(size, removed, MASSIVE_SIZE)
    lab.claim("removed", source, effect(tensor, removed.every), premise, beside, sign=-1)

    lab.draw(by_layer, *makes, conditions=[removed.every, masked.every])
    lab.draw(dots, tensor, token, over=removed)
    lab.maps(removed.every, masked.every)


def tensor_error(position: int, layers: Place | None = None) -> Measure:
    """Error of the residual stream with one scale for all tokens of a prompt, in per cent."""
    return _error("stream, one scale a tensor (%)", "stream_error", Site.RESID, tensor_rounding, position, layers)


def token_error(position: int, layers: Place | None = None) -> Measure:
    """Error of the residual stream with one scale per token, in per cent."""
    return _error("stream, one scale a token (%)", "stream_row_error", Site.RESID, token_rounding, position, layers)


def neuron_error(position: int, layers: Place | None = None) -> Measure:
    """Error of the MLP's hidden units with one scale for all tokens of a prompt, in per cent."""
    return _error("MLP hidden units, one scale a tensor (%)", "neuron_error", Site.NEURON, tensor_rounding, position, layers)


def _error(
    name: str, statistic: str, site: Site, of: Callable[[jax.Array, View], jax.Array], position: int, layers: Place | None
) -> Measure:
    """Return a relative error in percent, mean over all tokens except one and over the outputs of some layers."""
    axis = "depth" if site == Site.RESID else "layer"

    def read(data: xarray.Dataset) -> NDArray[Any]:
        errors = 100 * np.nanmean(np.delete(data[statistic].values, position, axis=-1), axis=-1)
        written = errors[..., 1:] if axis == "depth" else errors  # not the embedding
        return np.asarray(written[..., layer_index(layers)].mean(axis=-1))

    asks = Probe(extra=(Statistic(statistic, site, of, ("prompt", axis, "position")),))
    return percentage(f"{name}{in_layers(layers)}", read, asks, note=NOTE, position=position)


def tensor_rounding(x: jax.Array, view: View) -> jax.Array:
    """||round(x / s) s - x|| / ||x|| of each position, s = max |x| / 127 over a prompt: [B, T] from [B, T, D]; 0 for zeros."""
    return _rounding(x, view, (1, 2))


def token_rounding(x: jax.Array, view: View) -> jax.Array:
    """Like `tensor_rounding`, with a scale for each position."""
    return _rounding(x, view, (2,))


def _rounding(x: jax.Array, view: View, axes: tuple[int, ...]) -> jax.Array:
    top = jnp.abs(real(x, view)).max(axis=axes, keepdims=True)
    scale = jnp.where(top > 0, top, 1) / STEPS
    lost = jnp.sqrt(jnp.square(jnp.round(x / scale) * scale - x).sum(axis=-1))
    size = jnp.sqrt(jnp.square(x).sum(axis=-1))
    return lost / jnp.where(size > 0, size, 1)
