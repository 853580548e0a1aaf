"""The extra key described in `attention_bias.py`: its part in scores, weights and outputs of attention.

Shape suffixes: B prompts, Q queries of a block, S keys, R stacked rows of a key-value head, H query heads, K key-value heads, D
head width.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from sinkjax.model import ops, rope
from sinkjax.model.attention_bias import KeyBias, SinkToken, ValueBias
from sinkjax.model.config import Config
from sinkjax.model.normaliser import Learned, Normaliser
from sinkjax.model.rotary import Rope


class ExtraKey(NamedTuple):
    """A key of no token. key: [B, K, D], as used in scores. value: [B, K, D], or None for zeros."""

    key: jax.Array
    value: jax.Array | None

    def scores(self, q_BHQD: jax.Array, scale: jax.Array | float, config: Config, precision: str) -> jax.Array:
        """Return the queries' capped scores: [B, H, Q, 1]."""
        (B, H, Q, D), K = q_BHQD.shape, self.key.shape[1]
        key_BK1D = self.key[:, :, None].astype(q_BHQD.dtype)
        scores = ops.score(q_BHQD.reshape(B, K, -1, D), key_BK1D, scale, precision)
        return ops.soft_cap(scores.reshape(B, H, Q, 1), config.caps.scores)

    def add(self, out_BHQD: jax.Array, weights_BHQ: jax.Array) -> jax.Array:
        """Add the weighted value to the heads' outputs."""
        if self.value is None:
            return out_BHQD
        H = out_BHQD.shape[1]
        value_BHD = jnp.repeat(self.value, H // self.value.shape[1], axis=1)
        return out_BHQD + weights_BHQ[..., None] * value_BHD[:, :, None]


def extra_key(w: Mapping[str, Any], config: Config, lengths: jax.Array, dtype: jnp.dtype, precision: str) -> ExtraKey | None:
    """Return the extra key of a layer with parameters `w`, or None if the model has none. lengths: int [B]."""
    bias, shape = config.kv_bias, (lengths.size, config.kv_heads, config.head_dim)
    if bias is None or isinstance(bias, ValueBias):
        return None

    def whole(x: jax.Array) -> jax.Array:
        missing = [(0, 0)] * (x.ndim - 1) + [(0, config.head_dim - x.shape[-1])]
        return jnp.broadcast_to(jnp.pad(x.astype(dtype), missing), shape)

    key = whole(w["attention_bias"]["key"])
    if isinstance(bias, SinkToken) and isinstance(config.position, Rope):
        tables = rope.tables(jnp.full((1, 1), -1), *rope.frequencies(config.position, config.head_dim, lengths, dtype))
        key = rope.rotate(key[:, None], *tables)[:, 0]
    if config.normaliser.kernel:
        key = config.normaliser.features(key, w.get("normaliser", {}), precision).astype(dtype)
    if not isinstance(bias, KeyBias):
        return ExtraKey(key, whole(w["attention_bias"]["value"]))
    if bias.value == "zero":
        return ExtraKey(key, None)
    ones = jnp.full(config.head_dim, config.head_dim**-0.5, dtype)
    fixed = ones if bias.value == "ones" else jnp.zeros_like(ones).at[0].set(1)
    return ExtraKey(key, jnp.broadcast_to(bias.value_scale * fixed, shape))


def weigh(
    normaliser: Normaliser, scores: jax.Array, visible: jax.Array, given: Learned, of_extra: jax.Array | None
) -> tuple[jax.Array, jax.Array | None, jax.Array]:
    """Return weights [B, H, Q, S], each row's mass on no key ([B, H, Q] or None), and an extra key's weights [B, H, Q].

    of_extra: the extra key's scores [B, H, Q, 1], or None; its weights are then an empty array.
    """
    if of_extra is None:
        return normaliser.weights(scores, visible, given), normaliser.bias(scores, visible, given), jnp.zeros(0)
    seen = jnp.concatenate([jnp.ones_like(visible[..., :1]), visible], axis=-1)
    scores = jnp.concatenate([of_extra, scores], axis=-1)
    weights, beside = normaliser.weights(scores, seen, given), normaliser.bias(scores, seen, given)
    extra = weights[..., 0]
    return weights[..., 1:], extra if beside is None else extra + beside, extra
