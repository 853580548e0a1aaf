"""Scores of the first block's keys and queries at all rotary indices, and the attention that a key would receive at each.

Shape suffixes: T indices (I of the query, J of the key), N keys, H query heads, K key-value heads, D head width.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from sinkjax.model import rope
from sinkjax.model.config import Config


@partial(jax.jit, static_argnames=("config", "size"))
def grid(query_HD: jax.Array, keys_NKD: jax.Array, config: Config, size: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Scores of one query with N keys at all rotary indices 0 to size - 1 of both; the second key is the mean embedding's.

    Returns the scores of the first two keys [2, H, query index, key index]; of every key the mean score over pairs key <= query
    [N, H]; and the attention that it would receive at each index [N, H, key index].
    """
    frequencies, factor = rope.frequencies(config.rope, config.head_dim, jnp.array([size]), query_HD.dtype)
    tables = rope.tables(jnp.arange(size)[None], frequencies, factor)
    query_THD = rope.rotate(jnp.broadcast_to(query_HD, (1, size, *query_HD.shape)), *tables)[0] * config.scale
    causal = jnp.tri(size, dtype=bool)

    def scores(key_KD: jax.Array) -> jax.Array:
        key_TKD = rope.rotate(jnp.broadcast_to(key_KD, (1, size, *key_KD.shape)), *tables)[0]
        return jnp.einsum("IHD,JHD->HIJ", query_THD, jnp.repeat(key_TKD, config.group, axis=1), precision="highest")

    others = scores(keys_NKD[1])

    def one(key_KD: jax.Array) -> tuple[jax.Array, jax.Array]:
        found = scores(key_KD)
        return jnp.where(causal, found, 0).sum(axis=(-2, -1)) / causal.sum(), received(found, others)

    means, attention = jax.lax.map(one, keys_NKD)
    return jnp.stack([scores(keys_NKD[0]), others]), means, attention


def received(scores_HIJ: jax.Array, others_HIJ: jax.Array) -> jax.Array:
    """What one key would receive at index j, the keys at all other indices <= i being others: [H, J].

    The mean over queries i >= j of exp(scores_ij) / (exp(scores_ij) + sum over j' != j of exp(others_ij')).
    """
    size = scores_HIJ.shape[-1]
    causal = jnp.tri(size, dtype=bool)
    logs = jnp.where(causal, others_HIJ, -jnp.inf)
    nothing = jnp.full_like(logs[..., :1], -jnp.inf)
    before = jnp.concatenate([nothing, jax.lax.cumlogsumexp(logs, axis=logs.ndim - 1)[..., :-1]], axis=-1)
    after = jnp.concatenate([jax.lax.cumlogsumexp(logs, axis=logs.ndim - 1, reverse=True)[..., 1:], nothing], axis=-1)
    rest = jnp.logaddexp(before, after)  # in logarithms: nothing underflows where one key outweighs all others
    return jnp.where(causal, jax.nn.sigmoid(scores_HIJ - rest), 0).sum(axis=-2) / (size - jnp.arange(size))
