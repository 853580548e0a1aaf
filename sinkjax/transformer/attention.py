"""Attention in tiles of queries: causal, and bidirectional within the prefix of a prefix LM.

Long prompts are split into a few groups of queries, and each group computes only the keys that at least one of its queries can
see: two groups do 3/4 of the work of the full square, four 5/8, eight 9/16 and sixteen 17/32; the causal triangle is 1/2.

Shape suffixes: B prompts, T positions of queries, S of keys (T of them, unless there is a cache), Q queries of a
tile, N keys of that tile, H query heads, K key-value heads, D head width.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from sinkjax.edits.apply import where_changed
from sinkjax.edits.term import Edits
from sinkjax.model import ops
from sinkjax.model.attention_bias import ValueBias
from sinkjax.model.config import Config
from sinkjax.model.extra_key import ExtraKeys, extra_keys, weigh
from sinkjax.model.positions import add_to_scores, visible_keys
from sinkjax.model.site import PAIRS, Site
from sinkjax.probes.measure import query_axes, zeros_before
from sinkjax.probes.probe import Probe
from sinkjax.probes.statistics import PairView
from sinkjax.transformer.spec import ForwardSpec
from sinkjax.transformer.tape import Tape

# Queries per tile; no T x T array outlives a tile unless a map is requested.
QUERY_TILE = 256
GROUPED_TILE = 128  # the same, in prompts split into groups of queries
GROUPED_FROM = 512  # prompts with fewer positions are not split into groups
MOST_GROUPS, FEW_GROUPS = 16, 4  # on a CPU, and elsewhere: each group is compiled separately, in seconds on a GPU

KEPT = "kept keys"  # in a layer's record, under a cache policy

Axes = Mapping[str, int]  # name in the record -> its axis of queries


class HeadInputs(NamedTuple):
    """The heads of a layer, as `attend` takes them.

    q: rotated queries [B, T, H, D]. k, v: [B, S, K, D]. by_head: the values of each query head [B, S, H, D], if an edit may have
    changed them, else None. window: int, the number of most recent keys that a query sees, or None. w: the layer's parameters.
    """

    q: jax.Array
    k: jax.Array
    v: jax.Array
    by_head: jax.Array | None
    window: jax.Array | None
    w: Mapping[str, Any]


class LayerInputs(NamedTuple):
    """The inputs that all tiles of queries of a layer share.

    k: [B, K, S, D]; wide_k: the same for statistics, at least float32. v: [B, K, S, D]; own: [B, H, S, D], if an edit
    may have changed the values of a query head, else None. extra: the keys in front of the tokens, or None. scale: factor on the
    scores.
    window: int, the number of most recent keys that a query sees, or None. w: the parameters of the layer. divide_last: whether
    the mixtures of values are divided instead of the weights.
    """

    k: jax.Array
    wide_k: jax.Array
    v: jax.Array
    own: jax.Array | None
    extra: ExtraKeys | None
    scale: jax.Array | float
    window: jax.Array | None
    w: Mapping[str, Any]
    divide_last: bool


def attend(heads: HeadInputs, tape: Tape, divide_last: bool = False) -> tuple[jax.Array, jax.Array]:
    """Compute attention of rotated queries to `visible_keys`, with the config's scale, positions and normaliser.

    tape: the layer's tape, with the static part of the pass and the position of the first query. divide_last: whether mixtures
    are divided even if `divides_last` is false. Products have operands in the dtype of v; scores, weights and all sums are at
    least float32. Returns the heads' outputs [B, T, H, D] in the dtype of v, and the number of rows that see no key, int [B].
    """
    q_BTHD, k_BSKD, v_BSKD, by_head_BSHD, window, w = heads
    T, S = q_BTHD.shape[1], k_BSKD.shape[1]
    config, precision = tape.spec.config, tape.spec.precision
    wide = jnp.promote_types(q_BTHD.dtype, jnp.float32)
    q_BHTD, k_BKSD, v_BKSD = (x.swapaxes(1, 2) for x in (q_BTHD, k_BSKD, v_BSKD))
    if config.normaliser.kernel:
        q_BHTD, k_BKSD = (_features(x, w, config, precision) for x in (q_BHTD, k_BKSD))
    given = LayerInputs(
        k=k_BKSD,
        wide_k=k_BKSD.astype(wide),
        v=v_BKSD,
        own=None if by_head_BSHD is None else by_head_BSHD.swapaxes(1, 2),
        extra=extra_keys(w, config, tape.spec.past, tape.lengths, wide, precision),
        scale=score_scale(tape, wide),
        window=window,
        w=w,
        divide_last=divide_last or divides_last(T, config, bool(tape.at(Site.WEIGHTS)), tape.spec.past),
    )
    axes = query_axes(tape.probe)
    groups: list[tuple] = []
    for begin, end in query_groups(T) if tape.cache is None else [(0, T)]:  # queries after a cache start at tape.first
        N = S if tape.cache else max(end, min(config.prefix or 0, T))
        tile = partial(_tile, given=given, N=N, tape=tape)
        groups.append(_in_tiles(tile, q_BHTD[:, :, begin:end], tape.first + begin, tile_size(T), axes))
    out, empty, record, counts = _together(groups, axes)
    record = {name: zeros_before(tape.spec.first, x, axes[name]) if name in axes else x for name, x in record.items()}
    tape.record |= _choose_queries(record, tape)
    tape.counts |= counts
    out = out.swapaxes(1, 2)
    if isinstance(config.kv_bias, ValueBias):
        out = out + w["attention_bias"]["output"]
    return out.astype(v_BSKD.dtype), empty


def _tile(rows_Q: jax.Array, q_BHQD: jax.Array, given: LayerInputs, N: int, tape: Tape) -> tuple:
    """Compute one query tile over the first N keys: outputs, rows that see no key, measurements and cell counts."""
    config, past = tape.spec.config, tape.spec.past
    inner = Tape(tape.spec, tape.edits, tape.lengths, tape.layer)  # its record is returned, because tiles are a loop's steps
    index_Q = past + rows_Q  # positions with the past in front
    seen = visible_keys(rows_Q, N, given.window, config.prefix, tape.lengths)[:, None]
    view = PairView(tape.lengths, rows_Q, seen, q_BHQD.astype(given.wide_k.dtype), given.wide_k, ahead=config.prefix is not None)
    total = past + given.k.shape[2]
    scores = _score(q_BHQD, given.k[:, :, :N], index_Q, past + jnp.arange(N), total, given.scale, given.w, tape.spec)
    of_past: jax.Array | None = None
    of_extra, extra_visible = _in_front(q_BHQD, index_Q, total, given, tape.spec)
    scores, visible = inner.logits(scores, view)
    learned = {**given.w.get("normaliser", {}), "rows": index_Q}
    divisor: jax.Array | None = None
    if given.divide_last:  # equal to rounding, with one pass fewer over the tile
        weights, divisor = config.normaliser.undivided(scores, visible, learned)
        bias = config.normaliser.bias(scores, visible, learned)
    else:
        weights, bias, of_extra = weigh(config.normaliser, scores, visible, learned, of_extra, extra_visible)
        if given.extra is not None:
            bias, of_past = given.extra.shares(of_extra, bias)
    weights = inner.weights(weights, dataclasses.replace(view, visible=visible, bias=bias, past=of_past, divisor=divisor))
    out = _mix(weights, divisor, of_extra, given, tape.spec.precision)
    empty = (~visible.any(axis=-1) & view.real_rows[..., 0]).sum(axis=(1, 2))
    return out, jnp.broadcast_to(empty, tape.lengths.shape), inner.record, inner.counts


def _score(
    q_BHQD: jax.Array,
    k_BKND: jax.Array,
    query_Q: jax.Array,
    key_N: jax.Array,
    total: int,
    scale: jax.Array | float,
    w: Mapping[str, Any],
    spec: ForwardSpec,
) -> jax.Array:
    """Compute scores [B, H, Q, N], scaled, capped and with position biases of queries and keys less than `total` apart."""
    (B, H, Q, D), (K, N) = q_BHQD.shape, k_BKND.shape[1:3]
    # The query heads h of one key-value head are neighbours, h // (H / K), so their rows stack into one product: R = Q H / K.
    scores = ops.score(q_BHQD.reshape(B, K, -1, D), k_BKND, scale, spec.precision).reshape(B, H, Q, N)
    return add_to_scores(ops.soft_cap(scores, spec.config.caps.scores), spec.config.position, query_Q, key_N, total, w)


def _in_front(
    q_BHQD: jax.Array, index_Q: jax.Array, total: int, given: LayerInputs, spec: ForwardSpec
) -> tuple[jax.Array | None, jax.Array | None]:
    """Compute the scores and the visibility of the keys in front of the tokens, if any. total: as for `_score`."""
    if given.extra is None:
        return None, None
    scores = given.extra.scores(q_BHQD, index_Q, total + 1, given.scale, given.w, spec.config, spec.precision)
    return scores, given.extra.visible(index_Q, given.window)


def _mix(
    weights: jax.Array, divisor: jax.Array | None, of_extra: jax.Array | None, given: LayerInputs, precision: str
) -> jax.Array:
    """Mix values into outputs [B, H, Q, D], with weights [B, H, Q, N], a pending divisor or None, and the weights in front [B, H,
    Q, E]."""
    (B, H, Q, N), v_BKSD = weights.shape, given.v
    out = ops.mix(weights.reshape(B, v_BKSD.shape[1], -1, N), v_BKSD[:, :, :N], precision).reshape(B, H, Q, v_BKSD.shape[-1])
    if given.own is not None:
        changed = (given.own != jnp.repeat(v_BKSD, H // v_BKSD.shape[1], axis=1)).any(axis=(2, 3), keepdims=True)
        out = where_changed(changed, ops.mix(weights, given.own[:, :, :N], precision), out)
    out = out if divisor is None else out / divisor
    return out if given.extra is None or of_extra is None else given.extra.add(out, of_extra)


def attend_evicting(
    q_BQHD: jax.Array,
    k_BQKD: jax.Array,
    v_BQKD: jax.Array,
    window: jax.Array | None,
    w: Mapping[str, Any],
    tape: Tape,
    rotate: Callable[..., jax.Array],
) -> tuple[jax.Array, jax.Array]:
    """Compute attention of new tokens to the keys that the cache policy keeps; as `attend`, but with unrotated queries and keys.

    Replaces tape.state with the state after these tokens. rotate: maps vectors, their indices and the layer to rotated vectors.
    Nothing is edited here. Records as KEPT the positions of the keys that each query finds in the cache, its own included: int
    [B, Q, S, K], -1 for others. With `spec.room`, measures weights as those of keys at their positions in the text.
    """
    B, Q, K = *q_BQHD.shape[:2], k_BQKD.shape[2]
    spec, policy, wide = tape.spec, tape.spec.cache_policy, jnp.promote_types(q_BQHD.dtype, jnp.float32)
    assert policy is not None
    assert tape.state is not None

    def turned(x: jax.Array, index: jax.Array) -> jax.Array:
        x = rotate(x, index, tape.layer).swapaxes(1, 2)
        return _features(x, w, spec.config, spec.precision) if spec.config.normaliser.kernel else x

    parts = policy.keys(tape.state, k_BQKD, v_BQKD, tape.first)
    k, v = (
        jnp.concatenate(each, axis=1).swapaxes(1, 2) for each in zip(*((keys.keys, keys.values) for keys in parts), strict=True)
    )
    extra = extra_keys(w, spec.config, spec.past, tape.lengths, wide, spec.precision)
    scale = score_scale(tape, wide)
    given = LayerInputs(k, k, v, None, extra, scale, window, w, divide_last=False)
    scores, visible = [], []
    for keys in parts:  # each part has its own indices
        q_BHQD, k_BKSD = turned(q_BQHD, keys.query_index), turned(keys.keys, keys.key_index)
        scores.append(_score(q_BHQD, k_BKSD, keys.query_index, keys.key_index, policy.size + Q, scale, w, spec))
        back = keys.query_index[:, None] - keys.key_index
        visible.append(keys.visible if window is None else keys.visible & (back < window))
    rows = jnp.minimum(tape.first + jnp.arange(Q), policy.size - 1)
    index = rows + spec.past
    in_front = _in_front(turned(q_BQHD, index), index, spec.past + policy.size, given, spec)
    learned, seen = {**w.get("normaliser", {}), "rows": index}, jnp.concatenate(visible, axis=-1)
    weights, bias, of_extra = weigh(spec.config.normaliser, jnp.concatenate(scores, axis=-1), seen, learned, *in_front)
    at_BSK = jnp.concatenate([jnp.broadcast_to(keys.position, (B, keys.keys.shape[1], K)) for keys in parts], axis=1)
    in_cache = jnp.concatenate([keys.visible for keys in parts], axis=-1)[:, 0, :, :, None]
    tape.record[KEPT] = jnp.where(in_cache, at_BSK[:, None], -1)
    if spec.room:
        bias, of_past = (bias, None) if extra is None else extra.shares(of_extra, bias)
        at_BHS = jnp.repeat(jnp.clip(at_BSK, 0, spec.room - 1).swapaxes(1, 2), q_BQHD.shape[2] // K, axis=1)  # 0 for empty slots
        place = jax.vmap(jax.vmap(lambda x, at: jnp.zeros((Q, spec.room), x.dtype).at[:, at].add(x)))
        seen_at = place(jnp.broadcast_to(seen, weights.shape).astype(jnp.int32), at_BHS) > 0
        no_keys, at = jnp.zeros((B, K, spec.room, 0), wide), tape.first + jnp.arange(Q)
        view = PairView(tape.lengths, at, seen_at, q_BQHD.swapaxes(1, 2), no_keys, bias=bias, past=of_past)
        tape.measure(Site.WEIGHTS, place(weights, at_BHS), view)
    out = _mix(weights, None, of_extra, given, spec.precision).swapaxes(1, 2)
    if isinstance(spec.config.kv_bias, ValueBias):
        out = out + w["attention_bias"]["output"]
    received = jnp.abs(weights).reshape(B, K, -1, weights.shape[-1]).sum(axis=2)
    tape.state = policy.keep(tape.state, k_BQKD, v_BQKD, tape.first, received)
    return out.astype(v_BQKD.dtype), (~seen.any(axis=-1)).sum(axis=(1, 2)) * jnp.ones(B, jnp.int32)


def _features(x: jax.Array, w: Mapping[str, Any], config: Config, precision: str) -> jax.Array:
    """Map queries or keys [..., D] by the normaliser's kernel, in at least float32; returned in their dtype."""
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    return config.normaliser.features(wide, w.get("normaliser", {}), precision).astype(x.dtype)


def score_scale(tape: Tape, dtype: jnp.dtype) -> jax.Array | float:
    """Return the factor on the scores of the tape's layer."""
    config = tape.spec.config
    return jnp.asarray(config.score_scale, dtype)[tape.layer] if isinstance(config.score_scale, tuple) else config.scale


def needs_pairs(edits: Edits, probe: Probe) -> dict[str, bool]:
    """Map each feature that needs the scores or weights, which no kernel returns, to whether it is requested."""
    measured = [entry.name for entry in probe.statistics if entry.site in PAIRS and entry.sums is None]
    measured += [entry.name for entry in probe.captures if entry.site in PAIRS]
    return {
        "edits at WEIGHTS": any(term.site == Site.WEIGHTS for term in edits),
        f"the measurement of {', '.join(measured)}": bool(measured),
    }


def tile_size(T: int) -> int:
    """Return how many of T queries have their scores in memory at once."""
    return min(T, QUERY_TILE) if T < GROUPED_FROM else GROUPED_TILE


def divides_last(T: int, config: Config, edited: bool, past: int = 0) -> bool:
    """Return whether mixtures of values are divided instead of the weights. edited: whether an edit acts on the weights.

    It does not depend on the probe, because a probe never changes a number.
    """
    return T >= GROUPED_FROM and isinstance(config.kv_bias, ValueBias | None) and not edited and not past


def query_groups(T: int) -> list[tuple[int, int]]:
    """Return each group's first query and the one after its last.

    A group has at least two tiles: XLA unrolls a loop over a single tile, and then the scores of several groups are alive at
    once.
    """
    tiles = -(-T // tile_size(T))
    most = MOST_GROUPS if jax.default_backend() == "cpu" else FEW_GROUPS
    groups = 1 if T < GROUPED_FROM else min(most, max(1, tiles // 2))
    ends = [min(tiles * (group + 1) // groups * tile_size(T), T) for group in range(groups)]
    return list(zip([0, *ends], ends, strict=False))


def _in_tiles(
    tile: Callable[[jax.Array, jax.Array], tuple], q_BHQD: jax.Array, begin: jax.Array | int, size: int, axes: Axes
) -> tuple:
    """Run `tile` over tiles of queries from position `begin`; join outputs over queries and sum the measurements."""
    Q = q_BHQD.shape[2]
    if Q <= size:
        return tile(begin + jnp.arange(Q), q_BHQD)
    tiles = -(-Q // size)
    padded = jnp.pad(q_BHQD, ((0, 0), (0, 0), (0, tiles * size - Q), (0, 0)))
    first = jnp.arange(tiles) * size

    def run(start: jax.Array) -> tuple[tuple, tuple]:
        queries = jax.lax.dynamic_slice_in_dim(padded, start, size, axis=2)
        out, empty, record, counts = tile(begin + start + jnp.arange(size), queries)
        joined = {name: x for name, x in record.items() if name in axes}
        return (out, joined), (empty, {name: x for name, x in record.items() if name not in axes}, counts)

    def step(sums: tuple, start: jax.Array) -> tuple[tuple, tuple]:
        joined, parts = run(start)
        return jax.tree.map(jnp.add, sums, parts), joined

    def join(x: jax.Array, axis: int) -> jax.Array:
        x = jnp.moveaxis(x, 0, axis)  # [..., tiles, Q, ...]
        x = x.reshape(*x.shape[:axis], tiles * size, *x.shape[axis + 2 :])
        return jax.lax.slice_in_dim(x, 0, Q, axis=axis)

    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(run, first[0])[1])
    (empty, summed, counts), (out, joined) = jax.lax.scan(step, zeros, first)
    return join(out, 2), empty, summed | {name: join(x, axes[name]) for name, x in joined.items()}, counts


def _together(groups: list[tuple], axes: Axes) -> tuple:
    """Combine the results of the groups of queries: join them along queries or sum them, as for tiles."""
    if len(groups) == 1:
        return groups[0]
    outs, empties, records, counts = zip(*groups, strict=True)

    def join(name: str) -> jax.Array:
        parts = [record[name] for record in records]
        return jnp.concatenate(parts, axis=axes[name]) if name in axes else sum(parts[1:], parts[0])

    empty, count = jax.tree.map(lambda first, *more: sum(more, first), *zip(empties, counts, strict=True))
    return jnp.concatenate(outs, axis=2), empty, {name: join(name) for name in records[0]}, count


def _choose_queries(record: dict[str, jax.Array], tape: Tape) -> dict[str, jax.Array]:
    """Keep the captured queries of LOGITS and WEIGHTS."""
    chosen = {entry.name: entry.positions for entry in tape.probe.captures if entry.site in PAIRS}
    return {name: x if chosen.get(name) is None else x[:, :, jnp.asarray(chosen[name])] for name, x in record.items()}
