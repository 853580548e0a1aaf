"""MLP neurons: how large their vectors are, what drives them, and what they write."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.edits.site import Site
from sinkjax.model.ops import rms_norm
from sinkjax.probes.probe import Capture, Probe

if TYPE_CHECKING:
    import xarray

    from sinkjax.checkpoints.model import Model

AXES = ("layer", "neuron")
PLACES = 16  # positions of a prompt that are looked at, the first among them


def sizes(model: Model) -> tuple[NDArray, NDArray]:
    """Norms of gate and up vectors over the median of their layer, float[layer, neuron] each; a neuron's size is the product."""
    gate, up = (np.asarray(_norms(model.params["layers"][name])) for name in ("gate", "up"))
    return gate / np.median(gate, axis=1, keepdims=True), up / np.median(up, axis=1, keepdims=True)


@jax.jit
def _norms(matrices: jax.Array) -> jax.Array:
    """L2 norms of the columns of matrices [L, d, F], one layer at a time: [L, F]."""
    return jax.lax.map(lambda matrix: jnp.linalg.norm(matrix.astype(jnp.float32), axis=0), matrices)


def survey(model: Model, tokens: NDArray, lengths: NDArray) -> xarray.Dataset:
    """What every neuron does at the first token and at other positions of some prompts: arrays [layer, neuron].

    gate_norm, up_norm: over the median of the layer. cosine_first, cosine_others: cosine of the gate vector with the normalised
    input of the MLP. activation_first, activation_others: mean |output|. concentration: share of the largest entry in the squared
    norm of the neuron's row of W_down. fed: that entry's dim. writes: what it adds to the massive dim at the first token, mean
    over prompts. massive_dim, a number: the dim of the largest |h| at the first token, over depths, in most prompts.
    """
    import xarray

    places = tuple(np.unique(np.linspace(0, lengths.min() - 1, PLACES).astype(int)).tolist())
    sites = (Site.EMBED, Site.ATTN_OUT, Site.NEURON, Site.RESID)
    probe = Probe(capture=tuple(Capture(site, positions=places) for site in sites))
    record = sinkjax.forward(model.params, tokens, model.config, probe=probe, lengths=lengths, logits=False).record
    resid = record["resid"]
    inputs = jnp.concatenate([record["embed"][:, None], resid[:, :-1]], axis=1) + record["attn_out"]
    first = np.asarray(resid[:, :, 0], np.float32)
    massive = int(np.bincount(np.abs(first).max(axis=1).argmax(axis=-1)).argmax())
    weights = model.params["layers"]
    look = partial(_look, massive=massive, eps=model.config.rms_norm.eps)
    layers = [
        look(inputs[:, layer], record["neuron"][:, layer], *(weights[name][layer] for name in ("mlp_norm", "gate", "down")))
        for layer in range(model.config.layers)
    ]
    found = {name: (AXES, np.stack([np.asarray(layer[name]) for layer in layers])) for name in layers[0]}
    gate, up = sizes(model)
    return xarray.Dataset(found | {"gate_norm": (AXES, gate), "up_norm": (AXES, up), "massive_dim": ((), massive)})


@partial(jax.jit, static_argnames=("massive", "eps"))
def _look(
    inputs: jax.Array, outputs: jax.Array, gain: jax.Array, gate: jax.Array, down: jax.Array, *, massive: int, eps: float
) -> dict[str, Any]:
    """One layer of `survey`: inputs [B, P, d], outputs [B, P, F], gain [d], gate [d, F], down [F, d]; position 0 comes first."""
    wide = jnp.promote_types(inputs.dtype, jnp.float32)
    x, gate, down, outputs = (array.astype(wide) for array in (rms_norm(inputs, gain, eps), gate, down, outputs))
    x = x / jnp.linalg.norm(x, axis=-1, keepdims=True)
    cosines = jnp.einsum("BPd,dF->BPF", x, gate / jnp.linalg.norm(gate, axis=0), precision="highest").mean(0)
    active = jnp.abs(outputs).mean(0)
    squares = jnp.square(down)
    return {
        "cosine_first": cosines[0],
        "cosine_others": cosines[1:].mean(0),
        "activation_first": active[0],
        "activation_others": active[1:].mean(0),
        "concentration": squares.max(-1) / squares.sum(-1),
        "fed": squares.argmax(-1),
        "writes": outputs[:, 0].mean(0) * down[:, massive],
    }
