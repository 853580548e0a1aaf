"""A past: keys and values, by layer, of tokens in front of every prompt, computed once.

Causality makes them independent of the prompt, so a pass with a past equals a pass over both, without the rows of the past. They
enter attention like a model's learned key (sinkjax/model/extra_key.py). Positions of edits, keys and measurements count the
tokens of the prompt only; rotary positions, position biases and windows count the past too.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from sinkjax.config_files.checks import refuse
from sinkjax.errors import SinkjaxError, short
from sinkjax.model.config import Config
from sinkjax.model.fingerprint import ModelIdentity, digest
from sinkjax.model.params import Params
from sinkjax.model.rotary import DynamicScaling, LongScaling
from sinkjax.transformer.embed import embed
from sinkjax.transformer.layers import block_step
from sinkjax.transformer.sink_token import with_sink_token
from sinkjax.transformer.spec import ForwardSpec


@struct.dataclass
class Past:
    """Keys, as attention reads them (rotated and normed), and values, by layer: float [L, P, K, D] each.

    model: the model that computed them; None inside a transformation of JAX.
    """

    keys: jax.Array
    values: jax.Array
    model: ModelIdentity | None = struct.field(pytree_node=False, default=None, kw_only=True)

    @property
    def positions(self) -> int:
        """Number P of positions in front of a prompt."""
        return int(self.keys.shape[1])

    def digest(self) -> str:
        """Return a digest of all numbers."""
        return digest(np.asarray(self.keys), np.asarray(self.values))


def put_in_front(
    params: Params, past: Past | None, config: Config, T: int, source: Mapping[str, Any] | None = None
) -> tuple[Params, int]:
    """Return the parameters with a past for prompts of up to T tokens, and its length; without a past, unchanged and 0.

    source: the model's, for its name. Errors: not a past; one of another shape or of another model, or with NaN or infinity;
    together with the prompts beyond the context; a model that would read it differently in front of a prompt (`obstacles`).
    """
    if past is None:
        return params, 0
    refuse(not isinstance(past, Past), f"past must come from sinkjax.sink_prefix or sinkjax.load_prefix, not {short(past)}")
    P = past.positions
    want = config.layers, P, config.kv_heads, config.head_dim
    for name, array in (("keys", past.keys), ("values", past.values)):
        if array.shape != want or P == 0:
            raise SinkjaxError(
                f"the {name} of past have shape {array.shape}, but this model needs {want} with at least 1 position"
            )
    refuse_not_finite(past)
    if past.model is not None:
        past.model.refuse_other("this past", params, config, source)
    refuse(P + T > config.context, f"a past of {P} and {T} positions are more than the model's context of {config.context}")
    for why, here in obstacles(config, P, T).items():
        refuse(here, f"past cannot stand for its tokens here: {why}")
    return params | {"layers": params["layers"] | {"past": {"key": past.keys, "value": past.values}}}, P


def refuse_not_finite(past: Past) -> None:
    """Raise if a key or value is NaN or infinite, unless they are traced."""
    for name, array in (("keys", past.keys), ("values", past.values)):
        if not isinstance(array, jax.core.Tracer) and not np.isfinite(np.asarray(array)).all():
            raise SinkjaxError(f"the {name} of past have NaN or infinity; a model in float16 may need a wider dtype")


def obstacles(config: Config, P: int, T: int) -> dict[str, bool]:
    """Map each reason why the keys of P tokens depend on up to T tokens behind them to whether it applies."""
    scalings = [rope.scaling for rope in config.ropes if isinstance(rope.scaling, DynamicScaling | LongScaling)]
    long = P > 1 and any(P + T > scaling.original_context for scaling in scalings)  # index 0 is never rotated
    return {
        f"in this model the first {config.prefix} positions (Config.prefix) see later ones": config.prefix is not None,
        "rotary frequencies change as the prompt grows, so keys behind the first are rotated differently": long,
    }


@partial(jax.jit, static_argnames="spec")
def computed(params: Params, tokens: jax.Array, *, spec: ForwardSpec) -> Past:
    """Compute the past of tokens int [P] that see only themselves and each other."""
    params, config, P = with_sink_token(params, spec), spec.config, tokens.shape[0]
    lengths = jnp.full(1, P)
    h, _ = embed(params, tokens[None], lengths, (), spec)
    empty = jnp.zeros((config.layers, 1, P, config.kv_heads, config.head_dim), h.dtype)
    xs = (jnp.arange(config.layers), params["layers"], (empty, empty))
    _, layers = jax.lax.scan(block_step(spec, lengths, (), h), (h, {}), xs)
    keys, values = layers["cache"]
    return Past(keys[:, 0], values[:, 0])
