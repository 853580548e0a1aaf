"""Attention in blocks of queries: causal, and both ways within a prefix if there is one.

Shape suffixes: B prompts, T positions of queries, S of keys (T of them, unless those of an earlier pass are kept), Q queries of a
block, H query heads, K key-value heads, D head width.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from sinkjax.edits.site import Site
from sinkjax.model import ops
from sinkjax.model.attention_bias import SinkToken, ValueBias
from sinkjax.model.extra_key import extra_key, weigh
from sinkjax.model.ops import soft_cap
from sinkjax.model.positions import add_to_scores, visible_keys
from sinkjax.probes.measure import query_axes
from sinkjax.probes.statistics import PairView
from sinkjax.transformer.fused import attend_fused
from sinkjax.transformer.tape import Tape

QUERY_BLOCK = 256  # queries whose scores exist at one time; no array of T x T outlives a block unless a map is asked for


def attend(
    q_BTHD: jax.Array,
    k_BSKD: jax.Array,
    v_BSKD: jax.Array,
    window: jax.Array | None,
    w: Mapping[str, Any],
    tape: Tape,
) -> tuple[jax.Array, jax.Array]:
    """Attention of rotated queries to `visible_keys`, by the config's scale, positions and normaliser.

    window: int, the number of last keys a query sees, or None. w: the parameters of the layer. tape: of the layer, with what is
    static in the pass and the position of the first query.
    Scores, weights and their sums are at least float32.
    Returns the heads' outputs [B, T, H, D] in the dtype of v, and the number of rows that see nothing, int [B].
    """
    B, T, H, D = q_BTHD.shape
    S = k_BSKD.shape[1]
    config, precision = tape.spec.config, tape.spec.precision
    if tape.spec.attention_impl == "fused":
        return attend_fused(q_BTHD, k_BSKD, v_BSKD, config), jnp.zeros(B, jnp.int32)
    K = k_BSKD.shape[2]
    wide = jnp.promote_types(q_BTHD.dtype, jnp.float32)
    q_BHTD, k_BKSD, v_BKSD = (x.astype(wide).swapaxes(1, 2) for x in (q_BTHD, k_BSKD, v_BSKD))
    learned = w.get("normaliser", {})
    if config.normaliser.kernel:
        q_BHTD, k_BKSD = (config.normaliser.features(x, learned, precision).astype(wide) for x in (q_BHTD, k_BKSD))
    extra = extra_key(w, config, tape.lengths, wide, precision)
    by_layer = isinstance(config.score_scale, tuple)
    scale = jnp.asarray(config.score_scale, wide)[tape.layer] if by_layer else config.scale

    def block(rows_Q: jax.Array, q_BHQD: jax.Array) -> tuple:
        inner = tape.fork()
        Q = rows_Q.size
        seen = visible_keys(rows_Q, S, window, config.prefix, tape.lengths)[:, None]
        view = PairView(tape.lengths, rows_Q, seen, q_BHQD, k_BKSD, ahead=config.prefix is not None)
        # Queries are scaled, not scores: that product would be fused into the softmax unless an edit lies between. The query
        # heads h of one key-value head are neighbours, h // (H / K), so their rows stack into one product: R = Q H / K.
        stacked_BKRD = (q_BHQD if config.score_scale == 1 else q_BHQD * scale).reshape(B, K, -1, D)
        scores = soft_cap(ops.score(stacked_BKRD, k_BKSD, precision).reshape(B, H, Q, S), config.caps.scores)
        scores = add_to_scores(scores, config.position, rows_Q[:, None] - jnp.arange(S), S, w)
        scores, visible = inner.logits(scores, view)
        given = {**learned, "rows": rows_Q}
        of_extra = None if extra is None else extra.scores(stacked_BKRD, precision).reshape(B, H, Q, 1)
        of_extra = None if of_extra is None else soft_cap(of_extra, config.caps.scores)
        if of_extra is not None and isinstance(config.attention_bias, SinkToken):
            of_extra = add_to_scores(of_extra, config.position, rows_Q[:, None] + 1, S + 1, w)
        weights, bias, of_extra = weigh(config.normaliser, scores, visible, given, of_extra)
        weights = inner.weights(weights, dataclasses.replace(view, visible=visible, bias=bias))
        out = ops.mix(weights.reshape(B, K, -1, S), v_BKSD, precision).reshape(B, H, Q, D)
        out = out if extra is None else extra.add(out, of_extra)
        empty = (~visible.any(axis=-1) & view.real_rows[..., 0]).sum(axis=(1, 2))
        return out, jnp.broadcast_to(empty, (B,)), inner.record, inner.counts

    if T <= QUERY_BLOCK:
        out, empty, record, counts = block(tape.first + jnp.arange(T), q_BHTD)
    else:
        out, empty, record, counts = _in_blocks(block, q_BHTD, tape)
    tape.record |= _choose_queries(record, tape)
    tape.counts |= counts
    out = out.swapaxes(1, 2)
    if isinstance(config.attention_bias, ValueBias):
        out = out + w["attention_bias"]["output"]
    return out.astype(v_BSKD.dtype), empty


def _in_blocks(block: Callable[[jax.Array, jax.Array], tuple], q_BHTD: jax.Array, tape: Tape) -> tuple:
    """Run `block` over blocks of queries: outputs over queries are joined, all others added up as they come."""
    T = q_BHTD.shape[2]
    blocks = -(-T // QUERY_BLOCK)
    padded = jnp.pad(q_BHTD, ((0, 0), (0, 0), (0, blocks * QUERY_BLOCK - T), (0, 0)))
    first = jnp.arange(blocks) * QUERY_BLOCK

    axes = query_axes(tape.probe)

    def run(start: jax.Array) -> tuple[tuple, tuple]:
        queries = jax.lax.dynamic_slice_in_dim(padded, start, QUERY_BLOCK, axis=2)
        out, empty, record, counts = block(tape.first + start + jnp.arange(QUERY_BLOCK), queries)
        joined = {name: x for name, x in record.items() if name in axes}
        return (out, joined), (empty, {name: x for name, x in record.items() if name not in axes}, counts)

    def step(sums: tuple, start: jax.Array) -> tuple[tuple, tuple]:
        joined, parts = run(start)
        return jax.tree.map(jnp.add, sums, parts), joined

    def join(x: jax.Array, axis: int) -> jax.Array:
        x = jnp.moveaxis(x, 0, axis)  # [..., blocks, Q, ...]
        x = x.reshape(*x.shape[:axis], blocks * QUERY_BLOCK, *x.shape[axis + 2 :])
        return jax.lax.slice_in_dim(x, 0, T, axis=axis)

    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(run, first[0])[1])
    (empty, summed, counts), (out, joined) = jax.lax.scan(step, zeros, first)
    return join(out, 2), empty, summed | {name: join(x, axes[name]) for name, x in joined.items()}, counts


def _choose_queries(record: dict[str, jax.Array], tape: Tape) -> dict[str, jax.Array]:
    """Keep the captured queries of LOGITS and WEIGHTS."""
    chosen = {entry.name: entry.positions for entry in tape.probe.captures if entry.site in (Site.LOGITS, Site.WEIGHTS)}
    return {name: x if chosen.get(name) is None else x[:, :, jnp.asarray(chosen[name])] for name, x in record.items()}
