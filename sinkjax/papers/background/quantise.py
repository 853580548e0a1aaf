"""background/quantise: the error that a massive activation causes in 8-bit activations (Bondarenko et al. 2023, Sun et al. 2024).

One scale for all tokens of a prompt is set by its largest value, so that a massive activation leaves few of the 255 steps to the
others. The error is measured only: the model runs in full precision. Controls hold random dims of the same position at zero.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from numpy.typing import NDArray

from sinkjax import Edit, Probe, Site, Statistic, drop_mlp, edit, mask_key
from sinkjax.config_files.checks import refuse
from sinkjax.model.quantisation import rounded
from sinkjax.papers.background.massive import SPARED, by_size, stream_at
from sinkjax.probes.statistics import View
from sinkjax.study import *

BITS = 8
KINDS = {  # error -> its name, statistic and site
    "tensor": ("stream, one scale a tensor (%)", "stream_error", Site.RESID),
    "others": ("stream, the token left unrounded (%)", "stream_others_error", Site.RESID),
    "token": ("stream, one scale a token (%)", "stream_row_error", Site.RESID),
    "neuron": ("MLP hidden units, one scale a tensor (%)", "neuron_error", Site.NEURON),
}
NOTE = f"""Error: norm of the rounding error with {2**BITS - 1} even steps, over the norm of the token's vector, mean over the
    other tokens. A tensor holds one prompt."""


@dataclass(frozen=True, kw_only=True)
class Settings(Controlled, Mapped):
    position: int = 0
    """position of the massive activation"""
    dims: int = 2
    """how many of its largest dims are held at zero"""


def study(lab: Lab, s: Settings) -> None:
    """The error of activations that are rounded to 8 bits."""
    lab.needs("MLP")
    width = lab.architecture.width
    refuse(s.dims + SPARED > width, f"dims {s.dims} and {SPARED} more for the controls are more than the model's {width}")
    makes = [partial(error, kind, s.position) for kind in KINDS]
    (tensor, others, token, neurons), size = (make() for make in makes), largest_activation(s.position)
    columns = (tensor, others, token, neurons, size, loss())

    grows = layer(lab.steepest("grows", "resid_max", s.position), "the layer in which it grows")
    order = lab.donor("order", lambda run: by_size(stream_at(s.position, run)), np.arange(width), of_edited=True)

    def hold(dims: NDArray[Any]) -> Edit:
        return edit("resid", "set", 0.0, queries=s.position, dims=sorted(dims.tolist()), label="dims at zero")

    def other_dims(rng: np.random.Generator, case: Layers) -> Edit:
        return hold(order[rng.choice(np.arange(SPARED, width), case["dims"], replace=False)])

    zero = {ALL.at(dims=count): hold(order[:count]) for count in dict.fromkeys((1, s.dims))}
    held = lab.sweep("held", zero, columns, other_dims, title="held at zero")
    dropped = lab.sweep("dropped", {grows: drop_mlp(s.position, layers=grows.layers)}, columns, title="MLP dropped")
    masked = lab.sweep("masked", {ALL: mask_key(s.position)}, columns, title="key masked")
    lab.noop(edit("resid", "add", 0.0, queries=s.position))

    source, at_zero = "ours, on Bondarenko et al. 2023 and Sun et al. 2024", held.at(dims=s.dims)
    without = [unedited(tensor, held, minus=one) for one in (others, token)]
    edits = [held.at(dims=1), dropped.every, masked.every]
    beside = [*without, *(effect(tensor, where, controls=False) for where in edits), effect(loss(), at_zero)]
    premise, took = reaches(size, held, MASSIVE_SIZE), removed(size, at_zero)
    lab.claim("removed", source, effect(tensor, at_zero), premise, beside, sign=-1, took=took)

    lab.draw(by_layer, *makes, conditions=[at_zero, dropped.every, masked.every])
    lab.draw(dots, tensor, others, token, over=held)
    lab.maps(at_zero, masked.every)


def error(kind: str, position: int, layers: Layers = ALL) -> Measure:
    """Return a relative error in percent (`KINDS`), mean over all tokens except one and over the outputs of some layers."""
    name, statistic, site = KINDS[kind]
    axis = "depth" if site == Site.RESID else "layer"
    rounding = rounding_error((2,) if kind == "token" else (1, 2), position if kind == "others" else None)

    def read(data: xarray.Dataset) -> NDArray[Any]:
        errors = 100 * np.nanmean(np.delete(data[statistic].values, position, axis=-1), axis=-1)
        return np.asarray(errors[..., int(axis == "depth") :][..., layers.index].mean(axis=-1))  # not the embedding

    asks = Probe(extra=(Statistic(statistic, site, rounding, ("prompt", axis, "position")),))
    return percentage(f"{name}{layers.suffix}", read, asks, note=NOTE, position=position)


@functools.cache
def rounding_error(axes: tuple[int, ...], spared: int | None = None) -> Callable[[jax.Array, View], jax.Array]:
    """Return the function for ||round(x / s) s - x|| / ||x|| of each position, [B, T] from [B, T, D]; 0 for zeros.

    Args:
        axes: The axes that share a scale, s = max |x| / 127: (1, 2) for one scale per prompt, (2,) for one per position.
        spared: A position that the scale leaves out, where the error means nothing.
    """

    def rounding(x: jax.Array, view: View) -> jax.Array:
        counted = jnp.arange(x.shape[1]) != (-1 if spared is None else spared)
        counts = counted[None, :, None] & (jnp.arange(x.shape[1])[None, :, None] < view.lengths[:, None, None])
        lost, size = (jnp.sqrt(jnp.square(y).sum(axis=-1)) for y in (rounded(x, BITS, axes, counts) - x, x))
        return lost / jnp.where(size > 0, size, 1)

    return rounding
