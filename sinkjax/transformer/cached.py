"""Incremental decoding with a cache of keys and values, used by `generate`.

Every row is computed once, by the same block as `forward`. This is exact if no later token or length changes an earlier row, and
if a row needs only the keys and values of other rows; `why_not` reports the exceptions. Edits act on the rows that they select,
in the prompt or after it.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sinkjax.edits.term import Edits
from sinkjax.errors import SinkjaxError, short
from sinkjax.model.attention_bias import SinkToken
from sinkjax.model.config import Config
from sinkjax.model.norms import AfterRotation
from sinkjax.model.params import Params, abstract, dtype_of
from sinkjax.model.positions import AddedPosition
from sinkjax.model.rotary import DynamicScaling, LongScaling
from sinkjax.model.site import Site
from sinkjax.transformer.block import final_normed
from sinkjax.transformer.embed import embed
from sinkjax.transformer.eviction import CachePolicy, State
from sinkjax.transformer.layers import block_step
from sinkjax.transformer.output import logits_of, token_logits, token_nll, unembedded_width
from sinkjax.transformer.sink_token import with_sink_token
from sinkjax.transformer.spec import ForwardSpec
from sinkjax.transformer.tape import Cache

Measured = dict[str, jax.Array]
Held = Cache | State  # a layer's keys and values


class Call(NamedTuple):
    """The measurements of some rows of a pass: before the blocks, by layer, and the losses [B, T] of their targets or None."""

    rows: int
    before: Measured
    layers: list[Measured]
    nll: jax.Array | None


class Unstacked(NamedTuple):
    """Parameters with separate blocks: everything except the blocks, and a list of each block's parameters.

    A loop over stacked blocks copies each block's matrices before reading them, which is most of the work for a single row.
    """

    whole: Params
    layers: list[Params]

    @classmethod
    def of(cls, params: Params, spec: ForwardSpec) -> Unstacked:
        """Copy the blocks of `params` once."""
        whole = with_sink_token(params, spec)
        return cls({name: leaf for name, leaf in whole.items() if name != "layers"}, _blocks(whole["layers"]))

    @staticmethod
    def copied_bytes(config: Config, dtype: str) -> int:
        """Return the bytes of the copy that `of` makes."""
        return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(abstract(config)["layers"])) * jnp.dtype(dtype).itemsize


@jax.jit
def _blocks(stacked: Params) -> list[Params]:
    """Cut the stacked blocks apart, by one program for all leaves."""
    count = jax.tree.leaves(stacked)[0].shape[0]
    return [jax.tree.map(lambda leaf, layer=layer: leaf[layer], stacked) for layer in range(count)]


def go_on(
    params: Unstacked,
    tokens: jax.Array | np.ndarray,
    first: int,
    count: int,
    caches: list[Held] | None,
    edits: Edits,
    targets: np.ndarray | None = None,
    *,
    spec: ForwardSpec,
    total: int,
) -> tuple[jax.Array, list[Held], Call]:
    """Compute the next rows of prompts that may grow to `total` tokens, with three compiled programs per T at any depth.

    tokens: int [B, T] at positions first to first + T - 1. Only the first `count` are real; the rest are padding, which edits
    that move or centre rows ignore. caches: per layer, the rotated keys and values [B, total, K, D] of earlier positions, as
    returned by an earlier call, or the states of a cache policy, with which no row may be padding; None in the first call. edits:
    resolved for `total` positions. targets: int [B, T], the tokens whose loss the probe measures, if it does. Returns the logits
    [B, V] after the last real row, the updated `caches`, and the measurements of `spec.probe` (see rows.py).
    """
    config, B = spec.config, tokens.shape[0]
    at = np.int32(first), np.int32(count)  # Python ints would be weakly typed and trigger a recompilation
    h, before = _begin(params.whole, tokens, *at, edits, spec=spec, total=total)
    if caches is None and spec.cache_policy is not None:
        caches = [spec.cache_policy.empty(B, config.kv_heads, config.head_dim, h.dtype) for _ in params.layers]
    elif caches is None:
        by_head = any(term.site == Site.HEAD_VALUE for term in edits)  # then the cache has values of each query head
        keys, values = (
            (B, total, heads, config.head_dim) for heads in (config.kv_heads, config.heads if by_head else config.kv_heads)
        )
        caches = [tuple(jax.device_put(np.zeros(shape, h.dtype)) for shape in (keys, values)) for _ in params.layers]
    now, measured = [], []
    for layer, (w, cache) in enumerate(zip(params.layers, caches, strict=True)):
        h, after, record = _block(w, h, cache, np.int32(layer), at, edits, spec=spec)
        now.append(after)
        measured.append(record)
    logits, nll = _end(params.whole, h, at[1], targets if spec.probe.nll else None, spec=spec)
    return logits, now, Call(count, before, measured, nll)


@partial(jax.jit, static_argnames=("spec", "total"))
def _begin(
    params: Params, tokens: jax.Array, first: jax.Array, count: jax.Array, edits: Edits, *, spec: ForwardSpec, total: int
) -> tuple[jax.Array, Measured]:
    B, T = tokens.shape
    h, measured = embed(params, tokens, jnp.full(B, first + count), _of_rows(edits, first, T), spec, first, total)
    return h, measured["record"]


@partial(jax.jit, static_argnames="spec", donate_argnames="cache")
def _block(
    w: Params, h: jax.Array, cache: Held, layer: jax.Array, at: tuple[jax.Array, jax.Array], edits: Edits, *, spec: ForwardSpec
) -> tuple[jax.Array, Held, Measured]:
    (B, T, _), (first, count) = h.shape, at
    step = block_step(spec, jnp.full(B, first + count), _of_rows(edits, first, T), h, first)
    policy = spec.cache_policy is not None
    (h, _), measured = step((h, {}), (layer, w, *((None, cache) if policy else (cache,))))
    return h, measured["state" if policy else "cache"], measured["record"]


@partial(jax.jit, static_argnames="spec")
def _end(
    params: Params, h: jax.Array, count: jax.Array, targets: jax.Array | None, *, spec: ForwardSpec
) -> tuple[jax.Array, jax.Array | None]:
    config, last = spec.config, jax.lax.dynamic_slice_in_dim(h, count - 1, 1, axis=1)
    logits = logits_of(final_normed(last, params, config), params, config, spec.precision)[:, 0]
    if targets is None:
        return logits, None
    x = unembedded_width(final_normed(h, params, config), params, config, spec.precision)
    return logits, token_nll(partial(token_logits, params=params, config=config, precision=spec.precision), x, targets)


def _of_rows(edits: Edits, first: jax.Array, count: int) -> Edits:
    return tuple(term.for_rows(first, count) for term in edits)


@partial(jax.jit, static_argnames="spec", donate_argnames="states")
def stream(
    params: Params, tokens: jax.Array, lengths: jax.Array, first: jax.Array, states: Any, edits: Edits, *, spec: ForwardSpec
) -> tuple[jax.Array, Any]:
    """Compute the next-token loss of long texts under the cache policy of the pass.

    tokens: int [B, N + 1], from position `first`, N a multiple of the policy's block; the last token is only a target. lengths:
    int [B], of the whole texts. states: the layers' states, stacked, as returned by the previous call; None in the first. edits:
    resolved for all positions of the texts. Returns -log p of the next token in nats and whether it is the likeliest, [B, N, 2],
    and the new states.
    """
    config, policy, (B, N) = spec.config, spec.cache_policy, (tokens.shape[0], tokens.shape[1] - 1)
    assert policy is not None
    to_logits = partial(token_logits, params=params, config=config, precision=spec.precision)

    def step(states: Any, begin: jax.Array) -> tuple[Any, jax.Array]:
        piece = jax.lax.dynamic_slice_in_dim(tokens, begin, policy.block + 1, axis=1)
        here = first + begin
        known, of_rows = jnp.minimum(lengths, here + policy.block), _of_rows(edits, here, policy.block)
        h, _ = embed(params, piece[:, :-1], known, of_rows, spec)
        block = block_step(spec, known, of_rows, h, here)
        xs = (jnp.arange(config.layers), params["layers"], None, states)
        (h, _), layers = jax.lax.scan(block, (h, {}), xs)
        x = unembedded_width(final_normed(h, params, config), params, config, spec.precision)
        return layers["state"], token_nll(to_logits, x, piece[:, 1:], greedy=True)

    if states is None:
        each = policy.empty(B, config.kv_heads, config.head_dim, dtype_of(params))
        states = jax.tree.map(lambda x: jnp.broadcast_to(x, (config.layers, *x.shape)), each)
    states, scores = jax.lax.scan(step, states, jnp.arange(0, N, policy.block))
    return scores.swapaxes(0, 1).reshape(B, N, 2), states


def why_not(config: Config, edits: Edits, first: int, total: int, past: int = 0) -> str | None:
    """Return why the cache cannot extend prompts from `first` (or more) to `total` tokens, or None if it can.

    edits: resolved for `total` positions. past: the number of positions in front.
    """
    if config.prefix is not None and config.prefix > first:
        return f"a new token changes the rows before it, within a prefix of {config.prefix} tokens"
    for scaling in [rope.scaling for rope in config.ropes]:
        last = past + total - 1  # the last token is not read
        dynamic = isinstance(scaling, DynamicScaling) and last > scaling.original_context
        if dynamic or (isinstance(scaling, LongScaling) and past + first <= scaling.original_context < last):
            return "rotary frequencies change as the prompt grows"
    for term in edits:
        if term.centre == "positions" and np.asarray(term.query)[:, first:].any():
            return "an edit centred over positions acts on the generated tokens"
        if term.op == "swap" and np.asarray(term.value).max() >= first:
            return "an edit swaps positions that not all prompts have"
    return None


def refuse_policy(cache: Any, config: Config, edits: Edits, total: int, past: int) -> None:
    """Raise an error that names what excludes a cache policy for texts of `total` tokens."""
    if not isinstance(cache, CachePolicy):
        raise SinkjaxError(f"cache must be None, sinkjax.Streaming, H2O, KeyNorm or SnapKV, not {short(cache)}")
    for term in edits:
        if term.site in (Site.POSITION, Site.HEAD_VALUE, Site.LOGITS, Site.WEIGHTS):
            raise SinkjaxError(f"an edit at {term.site.name} needs all keys at their positions, but a cache policy keeps a few")
    reasons = {
        "positions that are added to the embedding": isinstance(config.position, AddedPosition),
        "a sink token": isinstance(config.kv_bias, SinkToken),
        "a prefix": config.prefix is not None,
        f"{config.normaliser!r} of rotated queries and keys": config.normaliser.kernel and bool(config.ropes),
        "a norm after the rotation": isinstance(config.qk_norm, AfterRotation),
        "queries that grow with their position": any(rope.growth for rope in config.ropes),
        "position biases that are rounded": getattr(config.position, "rounded", False),
    }
    for what, here in reasons.items():
        if here:
            raise SinkjaxError(f"a cache policy counts positions inside the cache, which a model with {what} does not allow")
    if reason := why_not(config, edits, cache.block, total, past):
        raise SinkjaxError(f"a cache policy computes rows one after the other, but {reason}")
