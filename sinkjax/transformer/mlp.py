"""The MLP of a block: gated, of three matrices, or plain, of two."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax

from sinkjax.edits.site import Site
from sinkjax.model.config import Config
from sinkjax.model.linear import add_bias, project
from sinkjax.model.params import Params
from sinkjax.transformer.tape import Tape

ACTIVATION: dict[str, Callable[[jax.Array], jax.Array]] = {
    "silu": jax.nn.silu,
    "gelu": partial(jax.nn.gelu, approximate=False),
    "gelu_tanh": partial(jax.nn.gelu, approximate=True),
    "relu": jax.nn.relu,
}


def mlp(x: jax.Array, w: Params, tape: Tape, config: Config, precision: str) -> jax.Array:
    """W_down (act(W_gate x) * W_up x), or W_down act(W_up x) without a gate: [B, T, d] to [B, T, d]; NEURON in between."""
    activation = ACTIVATION[config.activation]
    if config.gated_mlp:
        gate = add_bias(project(x, w["gate"], precision), w.get("gate_bias"))
        up = add_bias(project(x, w["up"], precision), w.get("up_bias"))
        neurons = activation(gate) * up
    else:
        neurons = activation(add_bias(project(x, w["up"], precision), w.get("up_bias")))
    return add_bias(project(tape(Site.NEURON, neurons), w["down"], precision), w.get("down_bias"))
