"""Score accounting: the contribution of each part of the residual stream to a head's score, or to a key's value."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray

from sinkjax.config_files.checks import refuse
from sinkjax.edits.resolve import selected
from sinkjax.edits.term import Select, as_along
from sinkjax.errors import SinkjaxError, one_of
from sinkjax.explain.parts import Before, FollowedPrompts, as_places, at_place, parts_of, walk
from sinkjax.model.heads import gated_values
from sinkjax.model.norms import normed_heads, normed_late
from sinkjax.model.ops import add_bias, project
from sinkjax.runtime.settings import fixed_settings
from sinkjax.transformer.attention import score_scale

if TYPE_CHECKING:
    from sinkjax.checkpoints.model import Model


@fixed_settings
def explain_score(
    model: Model,
    tokens: Any,
    query: Any = None,
    key: Any = 0,
    side: str = "key",
    layers: Select = None,
    heads: Select = None,
    neurons: int | None = None,
    lengths: Any = None,
    precision: str = "highest",
) -> xarray.Dataset:
    """Split heads' scores of one key by the parts of the residual stream of the key, or of the query.

    The score is scale * q.k after the rotation, before a soft cap and a position bias (ALiBi). For a given query it is linear in
    the key, and for a given key in the query, if norms keep their scale; so the parts sum to the score. In a layer whose window
    hides the key, it is the score that the key would have.

    Args:
        model: The model.
        tokens: int [B, T], padded on the right, or float [B, T, d].
        query: The position of the query, or one per prompt; None: the mean over all later queries that see the key.
        key: The position of the key, or one per prompt.
        side: "key" for the parts of the key's residual stream, or "query" for those of the query's, which must then be given.
        layers: Layers of the heads: an int, a sequence, a slice, or None for all; from 0.
        heads: Query heads, selected like `layers`.
        neurons: A layer whose MLP is split into its neurons, or None.
        lengths: int [B], by default T for all.
        precision: Matrix product precision, as in `sinkjax.forward`.

    Returns:
        `contribution` (prompt, layer, head, part) and `score` (prompt, layer, head), on the scale of the scores. A part written
        in or after the layer has 0. "bias" does not depend on the stream: biases of norms and projections. The
        coordinates `kind`, `written` and `index` of a part are its kind, the layer that wrote it, and its head or neuron.

    Raises:
        SinkjaxError: A position, layer or head is out of range; a query does not see the key; the model maps queries and keys
            by a kernel, has no MLP, or its MLP is a mixture of experts (with `neurons`).
    """
    one_of("side", side, ("key", "query"))
    prompts, known = FollowedPrompts.of(model, tokens, lengths, neurons, precision)
    config = prompts.config
    kernel = bool(config.normaliser.kernel)
    refuse(kernel, "scores of this model are not accounted for: it maps queries and keys by a kernel before their product")
    keys = as_places("key", key, known)
    if query is None:
        refuse(side == "query", 'side="query" needs the position of one query per prompt')
        if (wrong := keys + 1 >= known).any():
            raise SinkjaxError(f"no query of prompt {int(wrong.argmax())} comes after key {keys[wrong.argmax()]}")
        queries = np.full(len(known), -1, np.int32)
    else:
        queries = as_places("query", query, known)
        hidden = (queries < keys) & (keys >= (config.prefix or 0))
        for query, key in zip(queries[hidden], keys[hidden], strict=True):
            raise SinkjaxError(f"query {query} does not see key {key}, which comes after it")
    return as_dataset("score", _scores(prompts, queries, keys, side=side), prompts, layers, heads)


@fixed_settings
def explain_value(
    model: Model,
    tokens: Any,
    key: Any = 0,
    layers: Select = None,
    heads: Select = None,
    neurons: int | None = None,
    lengths: Any = None,
    precision: str = "highest",
) -> xarray.Dataset:
    """Split the output that heads read from one key, u = W_O v, by the parts of the key's residual stream.

    A part's contribution is the component of its own W_O v along the direction of u, so the parts sum to the norm of u.

    Args:
        model: The model.
        tokens: int [B, T], padded on the right, or float [B, T, d].
        key: The position of the key, or one per prompt.
        layers: Layers of the heads: an int, a sequence, a slice, or None for all; from 0.
        heads: Query heads, selected like `layers`.
        neurons: A layer whose MLP is split into its neurons, or None.
        lengths: int [B], by default T for all.
        precision: Matrix product precision, as in `sinkjax.forward`.

    Returns:
        `contribution` (prompt, layer, head, part) and `value_norm` (prompt, layer, head), the norm of u before a norm or a gate
        of the head's output; otherwise as for `explain_score`.

    Raises:
        SinkjaxError: A position, layer or head is out of range; the model has no MLP, or its MLP is a mixture of experts (with
            `neurons`).
    """
    prompts, known = FollowedPrompts.of(model, tokens, lengths, neurons, precision)
    return as_dataset("value_norm", _values(prompts, as_places("key", key, known)), prompts, layers, heads)


def as_dataset(
    name: str, accounts: tuple[jax.Array, jax.Array], prompts: FollowedPrompts, layers: Select, heads: Select
) -> xarray.Dataset:
    """The chosen layers and heads of contributions [L, B, H, C + 1] and wholes [L, B, H]."""
    config = prompts.config
    chosen_layers = np.flatnonzero(selected("layer", as_along("layer", layers), config.layers))
    chosen_heads = np.flatnonzero(selected("head", as_along("head", heads), config.heads))
    contribution, whole = (np.asarray(each)[chosen_layers][:, :, chosen_heads].swapaxes(0, 1) for each in accounts)
    axes = ("prompt", "layer", "head")
    have, labels = parts_of(config, prompts.split)
    return xarray.Dataset(
        {"contribution": ((*axes, "part"), contribution[..., have]), name: (axes, whole)},
        labels | {"layer": chosen_layers, "head": chosen_heads, "prompt": np.arange(len(whole))},
    )


@partial(jax.jit, static_argnames="side")
def _scores(prompts: FollowedPrompts, queries: jax.Array, keys: jax.Array, *, side: str) -> tuple[jax.Array, jax.Array]:
    """Contributions [L, B, H, C + 1] and scores [L, B, H]. queries: -1 for the mean over the queries that see the key."""
    config, lengths, precision = prompts.config, prompts.lengths, prompts.precision
    T, group = prompts.tokens.shape[1], config.heads // config.kv_heads
    back = jnp.arange(T) - keys[:, None]

    def of_block(before: Before) -> tuple[jax.Array, jax.Array]:
        seen = (back > 0) & (jnp.arange(T) < lengths[:, None])
        if before.window is not None:
            seen &= (back < before.window) | (keys < (config.prefix or 0))[:, None]
        mean = seen / jnp.maximum(seen.sum(axis=1, keepdims=True), 1)
        weights = jnp.where(queries[:, None] < 0, mean, back + keys[:, None] == queries[:, None])
        q, k = before.rotate(before.tape, before.tape.record["query"], before.tape.record["key"])
        q, k = (normed_late(each, before.w, f"{name}_norm", config.qk_norm) for name, each in (("q", q), ("k", k)))
        q = jnp.einsum("BT,BTHD->BHD", weights.astype(q.dtype), q, precision=precision)
        k = jnp.repeat(at_place(k, keys)[:, 0], group, axis=1)
        factor = score_scale(before.tape, q.dtype)

        def score(h: jax.Array) -> jax.Array:
            x, at = (frozen_vectors(stream, before, side[0]) for stream in (h, before.h))
            x, at = (before.rotate_place(before.tape, each, each)[side == "key"] for each in (x, at))
            turned = normed_late(x, before.w, f"{side[0]}_norm", config.qk_norm, at)[:, 0]
            pair = (q, jnp.repeat(turned, group, axis=1)) if side == "key" else (turned, k)
            return factor * jnp.einsum("BHD,BHD->BH", *pair, precision=precision)

        return shares(score, before), factor * jnp.einsum("BHD,BHD->BH", q, k, precision=precision)

    accounts: tuple[jax.Array, jax.Array] = walk(prompts, keys if side == "key" else queries, of_block)[0]
    return accounts


@jax.jit
def _values(prompts: FollowedPrompts, keys: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Contributions [L, B, H, C + 1] and norms of W_O v [L, B, H]."""
    config, precision = prompts.config, prompts.precision

    def of_block(before: Before) -> tuple[jax.Array, jax.Array]:
        o = jnp.broadcast_to(before.w["o"], (config.heads, *before.w["o"].shape[-2:]))

        def moved(v: jax.Array) -> jax.Array:
            by_head = jnp.repeat(v[:, 0], config.heads // config.kv_heads, axis=1)
            return jnp.einsum("BHD,HDd->BHd", by_head, o, precision=precision)

        whole = moved(before.site("value"))
        norm = jnp.linalg.norm(whole, axis=-1)
        along = whole / jnp.where(norm == 0, 1, norm)[..., None]

        def component(h: jax.Array) -> jax.Array:
            v = frozen_vectors(h, before, "v")
            v = gated_values(v, before.site("attn_in"), before.w, config.gate, precision)
            return jnp.einsum("BHd,BHd->BH", moved(v), along, precision=precision)

        return shares(component, before), norm

    accounts: tuple[jax.Array, jax.Array] = walk(prompts, keys, of_block)[0]
    return accounts


def frozen_vectors(h: jax.Array, before: Before, name: str) -> jax.Array:
    """`transformer.block.vectors` of the stream h, affine in it: norms and clips act on it as on the block's input."""
    config = before.config

    def read(x: jax.Array) -> jax.Array:
        if config.norm is not None and config.layout.inputs:
            x = config.norm(x, before.w, "attn_norm", before.h)
        return add_bias(project(x, before.w[name], before.precision), before.w.get(f"{name}_bias"))

    x, at = read(h), read(before.h)
    if config.qkv_clip is not None:
        clipped = jnp.clip(at, -config.qkv_clip, config.qkv_clip)
        x, at = x * jnp.where(at == 0, 1, clipped / jnp.where(at == 0, 1, at)), clipped
    return x if config.qk_norm is None or name == "v" else normed_heads(x, before.w, f"{name}_norm", config.qk_norm, at)


def shares(whole: Callable[[jax.Array], jax.Array], before: Before) -> jax.Array:
    """The contribution of each part, and last of the constant, to whole(h) [B, H], which is affine in h: [B, H, C + 1]."""
    constant, pull = jax.vjp(whole, jnp.zeros_like(before.h))
    each_head = jnp.eye(constant.shape[1], dtype=constant.dtype)
    (rows,) = jax.vmap(lambda head: pull(jnp.broadcast_to(head, constant.shape)))(each_head)
    each = jnp.einsum("HBPd,CBPd->BHC", rows, before.parts, precision=before.precision)
    return jnp.concatenate([each, constant[..., None]], axis=-1)
