"""MLP neurons: the size of their vectors, their inputs, and the dims they feed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from numpy.typing import NDArray

import sinkjax
from sinkjax.checkpoints.model import Model
from sinkjax.config_files.checks import refuse
from sinkjax.model.norms import gains
from sinkjax.model.site import Site
from sinkjax.papers._shared import in_blocks
from sinkjax.probes.probe import Capture, Probe
from sinkjax.study import Batch, Lab

Neuron = tuple[int, int]  # layer and number
AXES = ("layer", "neuron")
BLOCK = 8  # prompts per forward pass
PLACES = 16  # positions per prompt to inspect, including the first


def sizes(model: Model) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return gate and up norms relative to their layer's median, float[layer, neuron] each; a neuron's size is the product."""
    gate, up = (np.asarray(_norms(model.params["layers"][name])) for name in ("gate", "up"))
    return gate / np.median(gate, axis=1, keepdims=True), up / np.median(up, axis=1, keepdims=True)


def largest(model: Model, count: int, last: int | None = None) -> tuple[Neuron, ...]:
    """Return the neurons of largest size: the product of the norms of gate and up vector, each over its layer's median.

    Args:
        model: The model.
        count: How many.
        last: The last layer to take them from; None: the model's.
    """
    gate, up = (norms[: None if last is None else last + 1] for norms in sizes(model))
    return tuple(divmod(int(number), gate.shape[1]) for number in np.argsort(-(gate * up), axis=None, kind="stable")[:count])


def largest_neurons(lab: Lab, count: int, last: int | None = None) -> tuple[Neuron, ...]:
    """Return `largest` of the model that is edited, such as the untrained twin. Raises an error if they are too many."""
    width = lab.architecture.mlp_width or 0
    refuse(not 1 <= count <= width // 2, f"{count} neurons and as many controls do not fit a layer of {width}")
    blank = tuple((0, number) for number in range(count))
    return lab.donor("largest", lambda run: largest(run.model, count, last), blank, of_edited=True)


@jax.jit
def _norms(matrices: jax.Array) -> jax.Array:
    """Return L2 norms of the columns of matrices [L, d, F], one layer at a time: [L, F]."""
    return jnp.asarray(jax.lax.map(lambda matrix: jnp.linalg.norm(matrix.astype(jnp.float32), axis=0), matrices))


def survey(model: Model, batch: Batch, chosen: Sequence[Neuron]) -> xarray.Dataset:
    """Measure neurons' inputs at the first token and at other positions, and the dims that they feed.

    Args:
        model: The model.
        batch: The prompts.
        chosen: Layer and number of some neurons.

    Returns:
        For every neuron, [layer, neuron]: gate_norm and up_norm, over the median of the layer; cosine_first and cosine_others,
        cosine of the gate vector with the normed input of the MLP, mean over prompts; concentration, the share of the largest
        entry in the squared norm of the neuron's row of W_down; fed, that entry's dim. For the chosen neurons, [prompt, chosen]:
        own_first and own_others, the cosines; own_share, the share of the massive dim in the squared norm of the row. Of each
        prompt, [prompt]: massive_dim, the dim of the largest |h| at the first token, over depths.
    """
    places = tuple(np.unique(np.linspace(0, batch.lengths.min() - 1, PLACES).astype(int)).tolist())
    joined = in_blocks(batch, BLOCK, partial(_block, model, places))
    down, written, at, (gate, up) = model.params["layers"]["down"], _written(model), tuple(np.array(chosen).T), sizes(model)
    share, fed = (np.asarray(array) for array in _concentration(down, written))
    rows = np.square(np.asarray(down[at], np.float32) * np.asarray(written)[at[0]])  # [chosen, d]
    of_every = {"gate_norm": gate, "up_norm": up, "concentration": share, "fed": fed}
    of_every |= {f"cosine_{where}": joined[where].mean(0) for where in ("first", "others")}
    of_chosen = {f"own_{where}": joined[where][:, *at] for where in ("first", "others")}
    of_chosen["own_share"] = (rows / rows.sum(axis=1, keepdims=True))[:, joined["massive"]].T
    variables: dict[str, Any] = {name: (AXES, values) for name, values in of_every.items()}
    variables |= {name: (("prompt", "chosen"), values) for name, values in of_chosen.items()}
    return xarray.Dataset(variables | {"massive_dim": (("prompt",), joined["massive"])})


def _block(model: Model, places: tuple[int, ...], tokens: NDArray[Any], lengths: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Compute the arrays for `survey` from a few prompts: first and others [prompt, layer, neuron], and massive [prompt]."""
    probe = Probe(capture=tuple(Capture(site, positions=places) for site in (Site.MLP_IN, Site.RESID)))
    record = sinkjax.forward(model.params, tokens, model.config, probe=probe, lengths=lengths, logits=False).record
    gates, resid = model.params["layers"]["gate"], record["resid"]
    layers = [np.asarray(_cosines(record["mlp_in"][:, layer], gates[layer])) for layer in range(model.config.layers)]
    first, others = np.stack(layers, axis=2)
    largest = np.abs(np.asarray(resid[:, :, 0], np.float32)).max(axis=1)
    return {"first": first, "others": others, "massive": largest.argmax(axis=-1)}


@jax.jit
def _cosines(inputs: jax.Array, gate: jax.Array) -> jax.Array:
    """Cosines of an MLP's inputs [B, P, d] with gate vectors [d, F]: at the first position, and the others' mean [2, B, F]."""
    wide = jnp.promote_types(inputs.dtype, jnp.float32)
    x, gate = inputs.astype(wide), gate.astype(wide)
    x = x / jnp.linalg.norm(x, axis=-1, keepdims=True)
    cosines = jnp.einsum("BPd,dF->BPF", x, gate / jnp.linalg.norm(gate, axis=0), precision="highest")
    return jnp.stack([cosines[:, 0], cosines[:, 1:].mean(1)])


def _written(model: Model) -> jax.Array:
    """Return the gain of the norm on each MLP's output, [L, d]; ones if there is no norm."""
    config, name = model.config, "mlp_out_norm"
    if name not in model.params["layers"] or config.norm is None or "" not in config.norm.learned():
        return jnp.ones((config.layers, config.width), jnp.float32)
    return gains(config.norm, model.params["layers"][name])


@jax.jit
def _concentration(down: jax.Array, written: jax.Array) -> tuple[jax.Array, jax.Array]:
    """For rows of W_down [L, F, d] times [L, d], layer by layer: the largest entry's share of the squared norm, and its dim."""

    def of(layer: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        matrix, gain = layer
        squares = jnp.square(matrix.astype(jnp.float32) * gain)
        return squares.max(-1) / squares.sum(-1), squares.argmax(-1)

    found: tuple[jax.Array, jax.Array] = jax.lax.map(of, (down, written))
    return found
