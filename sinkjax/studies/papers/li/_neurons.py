"""MLP neurons: how large their vectors are, what drives them, and what they write."""

from __future__ import annotations

from collections.abc import Sequence
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
BLOCK = 8  # prompts of one forward
PLACES = 16  # positions of a prompt that are looked at, the first among them


def sizes(model: Model) -> tuple[NDArray, NDArray]:
    """Norms of gate and up vectors over the median of their layer, float[layer, neuron] each; a neuron's size is the product."""
    gate, up = (np.asarray(_norms(model.params["layers"][name])) for name in ("gate", "up"))
    return gate / np.median(gate, axis=1, keepdims=True), up / np.median(up, axis=1, keepdims=True)


@jax.jit
def _norms(matrices: jax.Array) -> jax.Array:
    """L2 norms of the columns of matrices [L, d, F], one layer at a time: [L, F]."""
    return jax.lax.map(lambda matrix: jnp.linalg.norm(matrix.astype(jnp.float32), axis=0), matrices)


def survey(model: Model, tokens: NDArray, lengths: NDArray, chosen: Sequence[tuple[int, int]]) -> xarray.Dataset:
    """What every neuron does at the first token and at other positions of some prompts: arrays [layer, neuron].

    gate_norm, up_norm: over the median of the layer. cosine_first, cosine_others: cosine of the gate vector with the normalised
    input of the MLP. activation_first, activation_others: mean |output|. concentration: share of the largest entry in the squared
    norm of the neuron's row of W_down. fed: that entry's dim. writes: what it adds to the massive dim at the first token, mean
    over prompts. massive_dim, a number: the dim of the largest |h| at the first token, over depths, in most prompts.

    Of each prompt, [prompt, chosen]: own_first, own_others, the cosines of the chosen neurons, (layer, number), and smaller, the
    share of their layer's neurons with a smaller cosine with the first token; own_massive_dim [prompt].
    """
    import xarray

    places = tuple(np.unique(np.linspace(0, lengths.min() - 1, PLACES).astype(int)).tolist())
    blocks = [slice(start, start + BLOCK) for start in range(0, len(lengths), BLOCK)]
    parts = [_block(model, tokens[at], lengths[at], places) for at in blocks]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    massive = int(np.bincount(joined["massive"]).argmax())
    down, at, (gate, up) = model.params["layers"]["down"], tuple(np.array(chosen).T), sizes(model)
    share, fed = (np.asarray(array) for array in _concentration(down))
    first = joined["cosine_first"]
    found = {name: joined[name].mean(0) for name in ("cosine_first", "cosine_others", "activation_first", "activation_others")}
    found |= {"concentration": share, "fed": fed, "gate_norm": gate, "up_norm": up}
    found["writes"] = joined["output_first"].mean(0) * np.asarray(down[:, :, massive], np.float32)
    smaller = np.stack([(first[:, layer] < first[:, layer, number, None]).mean(-1) for layer, number in chosen], axis=1)
    own = {"own_first": first[:, *at], "own_others": joined["cosine_others"][:, *at], "smaller": smaller}
    return xarray.Dataset(
        {name: (AXES, values) for name, values in found.items()}
        | {name: (("prompt", "chosen"), values) for name, values in own.items()}
        | {"own_massive_dim": (("prompt",), joined["massive"]), "massive_dim": ((), massive)}
    )


def _block(model: Model, tokens: NDArray, lengths: NDArray, places: tuple[int, ...]) -> dict[str, NDArray]:
    """What `survey` needs of a few prompts: [prompt, layer, neuron], and massive [prompt]."""
    sites = (Site.EMBED, Site.ATTN_OUT, Site.NEURON, Site.RESID)
    probe = Probe(capture=tuple(Capture(site, positions=places) for site in sites))
    record = sinkjax.forward(model.params, tokens, model.config, probe=probe, lengths=lengths, logits=False).record
    resid, weights = record["resid"], model.params["layers"]
    inputs = jnp.concatenate([record["embed"][:, None], resid[:, :-1]], axis=1) + record["attn_out"]
    look = partial(_look, eps=model.config.rms_norm.eps)
    layers = [
        look(inputs[:, layer], record["neuron"][:, layer], *(weights[name][layer] for name in ("mlp_norm", "gate")))
        for layer in range(model.config.layers)
    ]
    first = np.asarray(resid[:, :, 0], np.float32)
    found = {name: np.stack([np.asarray(layer[name]) for layer in layers], axis=1) for name in layers[0]}
    return found | {"massive": np.abs(first).max(axis=1).argmax(axis=-1)}


@partial(jax.jit, static_argnames="eps")
def _look(inputs: jax.Array, outputs: jax.Array, gain: jax.Array, gate: jax.Array, *, eps: float) -> dict[str, Any]:
    """One layer: inputs [B, P, d], outputs [B, P, F], gain [d], gate [d, F]; position 0 comes first. Returns [B, F]."""
    wide = jnp.promote_types(inputs.dtype, jnp.float32)
    x, gate, outputs = (array.astype(wide) for array in (rms_norm(inputs, gain, eps), gate, outputs))
    x = x / jnp.linalg.norm(x, axis=-1, keepdims=True)
    cosines = jnp.einsum("BPd,dF->BPF", x, gate / jnp.linalg.norm(gate, axis=0), precision="highest")
    active = jnp.abs(outputs)
    return {
        "cosine_first": cosines[:, 0],
        "cosine_others": cosines[:, 1:].mean(1),
        "activation_first": active[:, 0],
        "activation_others": active[:, 1:].mean(1),
        "output_first": outputs[:, 0],
    }


@jax.jit
def _concentration(down: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Of rows of W_down [L, F, d], one layer at a time: the largest entry's share of the squared norm, and its dim, [L, F]."""

    def of(matrix: jax.Array) -> tuple[jax.Array, jax.Array]:
        squares = jnp.square(matrix.astype(jnp.float32))
        return squares.max(-1) / squares.sum(-1), squares.argmax(-1)

    return jax.lax.map(of, down)
