"""The sink token of a model that has one: its own pass through the blocks (see `SinkToken`)."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from sinkjax.model.attention_bias import SinkToken
from sinkjax.model.config import NoPosition
from sinkjax.model.params import Params
from sinkjax.model.positions import AddedPosition
from sinkjax.model.site import Site
from sinkjax.probes.probe import Capture, Probe
from sinkjax.transformer.embed import embed
from sinkjax.transformer.layers import block_step, empty_slots
from sinkjax.transformer.spec import ForwardSpec


def with_sink_token(params: Params, spec: ForwardSpec) -> Params:
    """Add the keys and values of the sink token in each layer to the parameters, if the model has one."""
    if not isinstance(spec.config.kv_bias, SinkToken):
        return params
    return params | {"layers": params["layers"] | {"attention_bias": _keys_and_values(params, spec=spec)}}


@partial(jax.jit, static_argnames="spec")
def _keys_and_values(params: Params, *, spec: ForwardSpec) -> dict[str, jax.Array]:
    """Run the blocks on the sink token as a prompt of one position; return its "key" and "value", [L, K, D] each."""
    position = NoPosition() if isinstance(spec.config.position, AddedPosition) else spec.config.position
    vectors: Any = {"vocab_size": None, "embed_width": None, "unembed_bias": False}  # without tokens
    config = dataclasses.replace(spec.config, kv_bias=None, position=position, **vectors)
    probe = Probe(capture=(Capture(Site.KEY, name="key"), Capture(Site.VALUE, name="value")))
    token_spec = ForwardSpec(config=config, probe=probe, logits=False, precision=spec.precision)
    lengths = jnp.ones(1, jnp.int32)
    h, _ = embed(params, params["sink_token"][None, None], lengths, (), token_spec)
    step = block_step(token_spec, lengths, (), h)
    xs = (jnp.arange(config.layers), params["layers"])
    (_, slots), _ = jax.lax.scan(step, (h, empty_slots(step, params, h, probe)), xs)
    return {name: of_layers[:, 0, 0] for name, of_layers in slots.items()}
