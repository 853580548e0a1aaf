"""Keys and queries of the first block made from embeddings alone, before any context or position is mixed in.

k = RMSNorm(e) W_K and q = RMSNorm(e) W_Q, biases and norm in, before the rotation (Kiya et al. 2026, section 3). Shape suffixes:
N vectors, V vocabulary, d width, H query heads, K key-value heads, D head width.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from sinkjax.checkpoints.model import Model
from sinkjax.model.config import Config
from sinkjax.model.heads import normed_queries_keys
from sinkjax.model.ops import add_bias, rms_norm
from sinkjax.model.params import Params

BLOCK = 4096  # vectors whose keys exist at one time


def known(model: Model) -> NDArray[np.bool_]:
    """Which rows of the embedding are tokens: bool [V]; some models pad their vocabulary."""
    size = model.config.vocab_size or 0
    return np.arange(size) < (model.tokenizer.backend.get_vocab_size() if model.tokenizer else size)


def ordinary(model: Model) -> NDArray[np.bool_]:
    """Which rows of the embedding are tokens of text, not special ones: bool [V]."""
    special = model.tokenizer.special if model.tokenizer else []
    return known(model) & ~np.isin(np.arange(model.config.vocab_size or 0), special)


def averaged(model: Model, bos: int, special: bool) -> NDArray[np.bool_]:
    """Which rows enter e_avg: all tokens but the BOS, the special ones only if `special`."""
    rows = known(model) if special else ordinary(model)
    return rows & (np.arange(rows.size) != bos)


@jax.jit
def mean_embedding(embed_Vd: jax.Array, rows_V: jax.Array) -> jax.Array:
    """Mean of the chosen rows, at least in float32: [d]."""
    wide = embed_Vd.astype(jnp.promote_types(embed_Vd.dtype, jnp.float32))
    return jnp.where(rows_V[:, None], wide, 0).sum(axis=0) / rows_V.sum()


@partial(jax.jit, static_argnames="config")
def project(params: Params, x_Nd: jax.Array, config: Config) -> tuple[jax.Array, jax.Array]:
    """Queries [N, H, D] and keys [N, K, D] of the first block for vectors in place of embeddings, in their dtype."""
    first = jax.tree.map(lambda leaf: leaf[0].astype(x_Nd.dtype), _attention(params))
    x_Nd = rms_norm(x_Nd, first["attn_norm"], config.rms_norm.eps)
    q_NHD = jnp.einsum("Nd,dHD->NHD", x_Nd, first["q"], precision="highest")
    k_NKD = jnp.einsum("Nd,dKD->NKD", x_Nd, first["k"], precision="highest")
    q_NHD, k_NKD = add_bias(q_NHD, first.get("q_bias")), add_bias(k_NKD, first.get("k_bias"))
    return (q_NHD, k_NKD) if config.qk_norm is None else normed_queries_keys(q_NHD, k_NKD, first, config.qk_norm.eps)


def _attention(params: Params) -> Params:
    """The leaves that queries and keys are made of."""
    names = ("attn_norm", "q", "k", "q_bias", "k_bias", "q_norm", "k_norm")
    return {name: params["layers"][name] for name in names if name in params["layers"]}


@partial(jax.jit, static_argnames="config")
def against(params: Params, x_Nd: jax.Array, query_HD: jax.Array, config: Config) -> dict[str, jax.Array]:
    """Norms of the keys of vectors, and their cosines with one query, by both conventions for grouped keys: float [N] each.

    key_norm: of the K heads joined; repeated to query heads it is sqrt(H / K) times as large. cosine_kv: the query heads of a
    group are averaged, and the K heads joined. cosine_repeated: the keys are repeated, and the H heads joined. cosine_heads: the
    mean over query heads of the cosine of each with its key. Only a block of keys exists at one time.
    """
    group = config.group

    def one(x_d: jax.Array) -> dict[str, jax.Array]:
        key_KD = project(params, x_d[None], config)[1][0]
        repeated_HD = jnp.repeat(key_KD, group, axis=0)
        return {
            "key_norm": jnp.linalg.norm(key_KD),
            "cosine_kv": _cosine(query_HD.reshape(config.kv_heads, group, -1).mean(axis=1).ravel(), key_KD.ravel()),
            "cosine_repeated": _cosine(query_HD.ravel(), repeated_HD.ravel()),
            "cosine_heads": _cosine(query_HD, repeated_HD).mean(),
        }

    return jax.lax.map(lambda x_d: one(x_d.astype(query_HD.dtype)), x_Nd, batch_size=BLOCK)


@partial(jax.jit, static_argnames="config")
def by_head(query_HD: jax.Array, keys_NKD: jax.Array, config: Config) -> dict[str, jax.Array]:
    """Per head: cosine of the query with each key [N, H], norms of the keys [N, K] and of the query [H]."""
    repeated_NHD = jnp.repeat(keys_NKD, config.group, axis=1)
    return {
        "cosine": _cosine(query_HD, repeated_NHD),
        "norm": jnp.linalg.norm(keys_NKD, axis=-1),
        "query_norm": jnp.linalg.norm(query_HD, axis=-1),
    }


def _cosine(x: jax.Array, y: jax.Array) -> jax.Array:
    """Cosine along the last axis; 0 with a vector of zeros."""
    size = jnp.linalg.norm(x, axis=-1) * jnp.linalg.norm(y, axis=-1)
    return (x * y).sum(axis=-1) / jnp.maximum(size, jnp.finfo(size.dtype).tiny)
