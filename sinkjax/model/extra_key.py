"""Keys in front of the tokens: the learned key of `attention_bias.py`, then the keys of a past (`transformer/past.py`).

They have no column in the record, and no edit acts on them. They enter each row through the config's normaliser and scale.

Shape suffixes: B prompts, Q queries of a block, S keys, H query heads, K key-value heads, D head width, E keys in front, P of
which are of the past.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sinkjax.model import ops, rope
from sinkjax.model.attention_bias import KeyBias, SinkToken, ValueBias
from sinkjax.model.config import Config
from sinkjax.model.normaliser import Learned, Normaliser
from sinkjax.model.positions import ScorePosition, add_to_scores
from sinkjax.model.rotary import Rope


class ExtraKeys(NamedTuple):
    """Keys in front of the tokens.

    key: [B, K, E, D], as used in scores. value: [B, K, E, D], or None for zeros. indices: each key's position, counted from the
    first key of the past, -1 for a sink token, and None for a learned key, which has no position. learned: the number of learned
    keys, which come first.
    """

    key: jax.Array
    value: jax.Array | None
    indices: tuple[int | None, ...]
    learned: int

    def scores(
        self,
        q_BHQD: jax.Array,
        index_Q: jax.Array,
        total: int,
        scale: jax.Array | float,
        w: Mapping[str, Any],
        config: Config,
        precision: str,
    ) -> jax.Array:
        """Return the queries' scores, capped and with position biases: [B, H, Q, E].

        index_Q: the queries' positions, counted like `index`. total: more than the largest distance.
        """
        (B, H, Q, D), (K, E) = q_BHQD.shape, self.key.shape[1:3]
        scores = ops.score(q_BHQD.reshape(B, K, -1, D), self.key.astype(q_BHQD.dtype), scale, precision)
        scores = ops.soft_cap(scores.reshape(B, H, Q, E), config.caps.scores)
        placed = np.array([index is not None for index in self.indices])
        if not isinstance(config.position, ScorePosition) or not placed.any():
            return scores
        index_E = jnp.array([index or 0 for index in self.indices])
        return jnp.where(placed, add_to_scores(scores, config.position, index_Q, index_E, total, w), scores)

    def visible(self, index_Q: jax.Array, window: jax.Array | None) -> jax.Array:
        """Return which queries see which keys, bool [Q, E]: a learned key is always seen, one of the past within a window."""
        always = np.arange(len(self.indices)) < self.learned
        if window is None:
            return jnp.ones((len(index_Q), len(self.indices)), bool)
        return (index_Q[:, None] - jnp.array([index or 0 for index in self.indices]) < window) | always

    def shares(self, weights_BHQE: jax.Array, beside_BHQ: jax.Array | None) -> tuple[jax.Array | None, jax.Array | None]:
        """Return the weight on no key (learned keys and `beside_BHQ`, the normaliser's) and on the past, [B, H, Q] or None."""
        learned, past = weights_BHQE[..., : self.learned].sum(axis=-1), weights_BHQE[..., self.learned :].sum(axis=-1)
        if not self.learned:
            return beside_BHQ, past
        return learned if beside_BHQ is None else learned + beside_BHQ, past if len(self.indices) > self.learned else None

    def add(self, out_BHQD: jax.Array, weights_BHQE: jax.Array) -> jax.Array:
        """Add the weighted values to the heads' outputs."""
        if self.value is None:
            return out_BHQD
        value_BHED = jnp.repeat(self.value, out_BHQD.shape[1] // self.value.shape[1], axis=1)
        return out_BHQD + (weights_BHQE[..., None] * value_BHED[:, :, None]).sum(axis=-2)


def extra_keys(
    w: Mapping[str, Any], config: Config, past: int, lengths: jax.Array, dtype: jnp.dtype, precision: str
) -> ExtraKeys | None:
    """Return the keys in front of the tokens in a layer with parameters `w`, or None if there are none.

    past: the number of keys in w["past"]. lengths: int [B].
    """
    has_key = not isinstance(config.kv_bias, ValueBias | None)
    parts: list[tuple[jax.Array, jax.Array | None]] = [_learned_key(w, config, lengths, dtype)] if has_key else []
    indices: tuple[int | None, ...] = (-1 if isinstance(config.kv_bias, SinkToken) else None,) * len(parts)
    learned = len(parts)
    if past:
        whole = (lengths.size, config.kv_heads, past, config.head_dim)
        key, value = (jnp.broadcast_to(w["past"][name].swapaxes(0, 1).astype(dtype), whole) for name in ("key", "value"))
        parts.append((key, value))
        indices += tuple(range(past))
    if not parts:
        return None
    keys, values = zip(*parts, strict=True)
    key = jnp.concatenate(keys, axis=2)
    if config.normaliser.kernel:
        key = config.normaliser.features(key, w.get("normaliser", {}), precision).astype(dtype)
    if all(value is None for value in values):
        return ExtraKeys(key, None, indices, learned)
    filled = [jnp.zeros_like(key_part) if value is None else value for key_part, value in zip(keys, values, strict=True)]
    return ExtraKeys(key, jnp.concatenate(filled, axis=2), indices, learned)


def _learned_key(
    w: Mapping[str, Any], config: Config, lengths: jax.Array, dtype: jnp.dtype
) -> tuple[jax.Array, jax.Array | None]:
    """Return the learned key and its value, [B, K, 1, D] each; a value of None is zeros."""
    bias, shape = config.kv_bias, (lengths.size, config.kv_heads, config.head_dim)

    def whole(x: jax.Array) -> jax.Array:
        missing = [(0, 0)] * (x.ndim - 1) + [(0, config.head_dim - x.shape[-1])]
        return jnp.broadcast_to(jnp.pad(x.astype(dtype), missing), shape)[:, :, None]

    key = whole(w["attention_bias"]["key"])
    if isinstance(bias, SinkToken) and isinstance(config.position, Rope):
        tables = rope.tables(jnp.full((1, 1), -1), *rope.frequencies(config.position, config.head_dim, lengths, dtype))
        key = rope.rotate(key.swapaxes(1, 2), *tables).swapaxes(1, 2)
    if not isinstance(bias, KeyBias):
        return key, whole(w["attention_bias"]["value"])
    if bias.value == "zero":
        return key, None
    ones = jnp.full(config.head_dim, config.head_dim**-0.5, dtype)
    fixed = ones if bias.value == "ones" else jnp.zeros_like(ones).at[0].set(1)
    return key, whole(bias.value_scale * fixed)


def weigh(
    normaliser: Normaliser,
    scores: jax.Array,
    visible: jax.Array,
    given: Learned,
    of_extra: jax.Array | None,
    extra_visible: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array | None, jax.Array]:
    """Return weights [B, H, Q, S], the normaliser's mass on no key ([B, H, Q] or None), and the weights in front [B, H, Q, E].

    of_extra: the scores of the keys in front [B, H, Q, E], or None; their weights are then an empty array. extra_visible: bool
    [Q, E].
    """
    if of_extra is None or extra_visible is None:
        return normaliser.weights(scores, visible, given), normaliser.bias(scores, visible, given), jnp.zeros(0)
    E = of_extra.shape[-1]
    seen = jnp.concatenate([jnp.broadcast_to(extra_visible, (*visible.shape[:-1], E)), visible], axis=-1)
    scores = jnp.concatenate([of_extra, scores], axis=-1)
    weights, beside = normaliser.weights(scores, seen, given), normaliser.bias(scores, seen, given)
    return weights[..., E:], beside, weights[..., :E]
