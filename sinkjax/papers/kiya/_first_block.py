"""Keys and queries of the first block made only from embeddings, before any context is mixed in (Kiya et al. 2026, section 3).

k = norm(e) W_K and q = norm(e) W_Q with biases, before the rotation, and their scores at all rotary indices. Shape
suffixes: N vectors, V vocabulary, d width, H query heads, K key-value heads, D head width, T indices (I of query, J of key).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from sinkjax.checkpoints.model import Model
from sinkjax.model import rope
from sinkjax.model.config import Config
from sinkjax.model.params import Params
from sinkjax.transformer.block import reading, vectors

BLOCK = 4096  # vectors whose keys are in memory at the same time
COLUMNS = 256  # dims whose mean is taken at the same time
LEAVES = ("attn_norm", "q", "k")  # the norm and the projections, and prefixes of their biases, norms, ...


def tokens(model: Model, special: bool = False) -> NDArray[np.bool_]:
    """Return which embedding rows are text tokens or, with `special`, any tokens: bool [V]; some models pad their vocabulary."""
    rows = np.arange(model.config.vocab_size or 0)
    if model.tokenizer is None:
        return np.ones(rows.size, bool)
    known = rows < model.tokenizer.backend.get_vocab_size()
    return known if special else known & ~np.isin(rows, model.tokenizer.special)


def averaged(model: Model, bos: int, special: bool) -> NDArray[np.bool_]:
    """Return which rows enter e_avg: all tokens except the BOS, and special tokens only if `special`."""
    return np.asarray(tokens(model, special) & (np.arange(model.config.vocab_size or 0) != bos))


def bos_and_mean(embed_Vd: jax.Array, bos: int, rows_V: NDArray[np.bool_]) -> jax.Array:
    """Return the embedding of BOS and the mean of the chosen rows, at least in float32: [2, d]."""
    size = embed_Vd.shape[1] if embed_Vd.dtype.itemsize > 2 else COLUMNS  # XLA on a CPU would copy all of bfloat16 to float32
    parts = (embed_Vd[:, first : first + size] for first in range(0, embed_Vd.shape[1], size))
    return jnp.concatenate([jax.block_until_ready(_bos_and_mean(part, bos, rows_V)) for part in parts], axis=1)


@jax.jit
def _bos_and_mean(embed_Vd: jax.Array, bos: int, rows_V: jax.Array) -> jax.Array:
    wide = embed_Vd.astype(jnp.promote_types(embed_Vd.dtype, jnp.float32))
    return jnp.stack([wide[bos], jnp.where(rows_V[:, None], wide, 0).sum(axis=0) / rows_V.sum()])


@partial(jax.jit, static_argnames="config")
def project(params: Params, x_Nd: jax.Array, config: Config) -> tuple[jax.Array, jax.Array]:
    """Compute queries [N, H, D] and keys [N, K, D] of the first block for vectors in place of embedding rows, in their dtype."""
    made_of = [name for name in params["layers"] if f"{name}_".startswith(tuple(f"{leaf}_" for leaf in LEAVES))]
    first = {name: params["layers"][name][0].astype(x_Nd.dtype) for name in made_of}
    x_Nd = x_Nd * jnp.asarray(config.multipliers.embedding, x_Nd.dtype)
    x_Nd = reading(x_Nd, first, "attn_norm", config).x
    q_NHD, k_NKD = (vectors(x_Nd, first, name, config, "highest") for name in ("q", "k"))
    return q_NHD, k_NKD


def against(params: Params, x_Nd: jax.Array, query_HD: jax.Array, config: Config) -> dict[str, NDArray[Any]]:
    """Return the norms of vectors' keys, and their cosines with a query, by both conventions for grouped keys: float [N] each.

    key_norm: of the K heads joined; repeated to query heads it is sqrt(H / K) times as large. cosine_kv: the query heads of a
    group are averaged, and the K heads joined. cosine_repeated: the keys are repeated, and the H heads joined. cosine_heads: the
    mean over query heads of the cosine of each with its key. Only a block of keys exists at one time.
    """
    blocks = (x_Nd[first : first + BLOCK] for first in range(0, len(x_Nd), BLOCK))
    found = [jax.device_get(_against(params, block, query_HD, config)) for block in blocks]
    return {name: np.concatenate([block[name] for block in found]) for name in found[0]}


@partial(jax.jit, static_argnames="config")
def _against(params: Params, x_Nd: jax.Array, query_HD: jax.Array, config: Config) -> dict[str, jax.Array]:
    group = config.group

    def one(x_d: jax.Array) -> dict[str, jax.Array]:
        key_KD = project(params, x_d[None], config)[1][0]
        repeated_HD = jnp.repeat(key_KD, group, axis=0)
        return {
            "key_norm": jnp.linalg.norm(key_KD),
            "cosine_kv": cosine(query_HD.reshape(config.kv_heads, group, -1).mean(axis=1).ravel(), key_KD.ravel()),
            "cosine_repeated": cosine(query_HD.ravel(), repeated_HD.ravel()),
            "cosine_heads": cosine(query_HD, repeated_HD).mean(),
        }

    return jax.vmap(one)(x_Nd.astype(query_HD.dtype))


def cosine(x: jax.Array, y: jax.Array) -> jax.Array:
    """Return the cosine along the last axis; 0 for a vector of zeros."""
    size = jnp.linalg.norm(x, axis=-1) * jnp.linalg.norm(y, axis=-1)
    return (x * y).sum(axis=-1) / jnp.maximum(size, jnp.finfo(size.dtype).tiny)


@partial(jax.jit, static_argnames=("config", "size"))
def grid(query_HD: jax.Array, keys_NKD: jax.Array, config: Config, size: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Score one query with N keys at all rotary indices 0 to size - 1 of both; the second key is the mean embedding's.

    Returns the scores of the first two keys [2, H, query index, key index]; of every key the mean score over pairs key <= query
    [N, H]; and the attention that it would receive at each index [N, H, key index].
    """
    kind = config.rope_of(0)
    assert kind is not None
    frequencies, factor = rope.frequencies(kind, config.head_dim, jnp.array([size]), query_HD.dtype)
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
    """Return the attention that one key would receive at index j if the keys at all other indices <= i were `others`: [H, J].

    The mean over queries i >= j of exp(scores_ij) / (exp(scores_ij) + sum over j' != j of exp(others_ij')).
    """
    size = scores_HIJ.shape[-1]
    causal = jnp.tri(size, dtype=bool)
    logs = jnp.where(causal, others_HIJ, -jnp.inf)
    nothing = jnp.full_like(logs[..., :1], -jnp.inf)
    before = jnp.concatenate([nothing, jax.lax.cumlogsumexp(logs, axis=logs.ndim - 1)[..., :-1]], axis=-1)
    after = jnp.concatenate([jax.lax.cumlogsumexp(logs, axis=logs.ndim - 1, reverse=True)[..., 1:], nothing], axis=-1)
    rest = jnp.logaddexp(before, after)  # in logarithms, so that nothing underflows if one key outweighs all others
    return jnp.where(causal, jax.nn.sigmoid(scores_HIJ - rest), 0).sum(axis=-2) / (size - jnp.arange(size))
