"""Apply operations to the array at a site: pure functions of traced arrays.

Every function takes one resolved term, the array and the layer index. It returns the new array and two counts per prompt, float
[B]: the cells *addressed* (selected, within the prompt and causally visible; a relation does not narrow them) and the cells
*changed*. Unselected cells pass through `where`, so an edit of neutral strength reproduces the unedited numbers exactly. The
exception is WEIGHTS at 512 positions or more, where they agree only to rounding because unedited weights are normalised after
their product with the values.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from sinkjax.edits.term import Resolved
from sinkjax.model.site import SITES

Counts = tuple[jax.Array, jax.Array]


def vectors(
    term: Resolved, x: jax.Array, layer: jax.Array | int, lengths: jax.Array, used: jax.Array | bool = True
) -> tuple[jax.Array, Counts]:
    """`set`, `add`, `scale`, `remove` and `swap` on vectors x [B, T, (H,) D]; `inject` adds to a stream before its norm.

    used: the cells that anything reads, bool like x; no other cell counts as changed.
    """
    per_head = x.ndim == 4
    if term.op == "swap":
        new, cells = _swap(x, term.value)
    else:
        position = term.key if SITES[term.site].positions == ("keys",) else term.query
        cells = position[:, :, None, None] & term.layer_head[layer][None, None, :, None] & term.dims[None, None, None, :]
        value = at_layer(term.value, layer)
        value = value if term.by_position else value[:, None]  # [B or 1, T or 1, (H or 1,) D or 1]
        cells = cells if per_head else cells[:, :, 0]
        wide = jnp.promote_types(x.dtype, jnp.float32)
        new = _operate(term, x.astype(wide), value.astype(wide))
    new = jnp.where(cells, new.astype(x.dtype), x)
    real = _real(lengths, x.shape[1]).reshape(x.shape[0], x.shape[1], *[1] * (x.ndim - 2))
    addressed = jnp.broadcast_to(cells & real, x.shape)
    return new, (_count(addressed), _count(addressed & (new != x) & used))


def scores(
    term: Resolved, scores: jax.Array, visible: jax.Array, rows: jax.Array, layer: jax.Array, lengths: jax.Array
) -> tuple[jax.Array, jax.Array, Counts]:
    """LOGITS, a block of queries: scores float and visible bool, both [B, H, Q, S]; rows int [Q], the positions of the queries.
    The keys are the first S positions.

    A value of -inf clears visibility and leaves the score unchanged, so no infinity enters the arithmetic and gradients stay
    finite.
    """
    selected, cells = _pairs(term, scores, rows, layer)
    addressed = selected & visible & _real_rows(lengths, rows)
    value = at_layer(term.value, layer)[:, :, None, None].astype(scores.dtype)
    masks = value == -jnp.inf
    value = jnp.where(masks, 0, value)
    edited = jnp.where(cells & ~masks, scores + value if term.op == "add" else value, scores)
    remaining = visible & ~(cells & masks)
    changed = addressed & ((remaining != visible) | (remaining & (edited != scores)))
    return edited, remaining, (_count(addressed), _count(changed))


def weights(
    term: Resolved, weights: jax.Array, visible: jax.Array, rows: jax.Array, layer: jax.Array, lengths: jax.Array
) -> tuple[jax.Array, Counts]:
    """WEIGHTS, a block of queries: weights float and visible bool, both [B, H, Q, S]. An invisible weight stays 0."""
    selected, cells = _pairs(term, weights, rows, layer)
    value = at_layer(term.value, layer).astype(weights.dtype)
    value = value[:, :, None, : weights.shape[-1]] if value.ndim == 3 else value[:, :, None, None]  # a row over keys, or a number
    new = jnp.where(cells & visible, weights * value if term.op == "scale" else value, weights)
    if term.renormalise:
        before, after = weights.sum(-1, keepdims=True), new.sum(-1, keepdims=True)
        if term.renormalise == "self":
            diagonal = (rows[:, None] == jnp.arange(weights.shape[-1])) & visible
            whole = new + jnp.where(diagonal, before - after, 0)
        else:
            usable = after != 0
            factor = jnp.where(usable, before / jnp.where(usable, after, 1), 0)
            whole = jnp.where(cells.any(-1, keepdims=True), new * factor, new)
        new = where_changed((new != weights).any(-1, keepdims=True), whole, new)  # the two sums may differ by rounding
    addressed = selected & visible & _real_rows(lengths, rows)
    return new, (_count(addressed), _count(addressed & (new != weights)))


def positions(
    term: Resolved, query: jax.Array, key: jax.Array, layer: jax.Array, lengths: jax.Array
) -> tuple[jax.Array, jax.Array, Counts]:
    """POSITION: the rotary indices of queries and of keys, int [B or 1, T] each."""
    active, real = term.layer_head[layer, 0], _real(lengths, query.shape[1])

    def operate(index: jax.Array, chosen: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        new = jnp.where(chosen & active, index + term.value if term.op == "shift" else term.value, index)
        return new, _count(chosen & active & real), _count((new != index) & real)

    query, addressed_query, changed_query = operate(query, term.query)
    key, addressed_key, changed_key = operate(key, term.key)
    return query, key, (addressed_query + addressed_key, changed_query + changed_key)


@jax.custom_jvp
def where_changed(changed: jax.Array, new: jax.Array, old: jax.Array) -> jax.Array:
    """Select `new` where `changed`, else `old` (equal to rounding), so that a neutral edit is bit-exact.

    The derivative always comes from `new`, because a strength has a derivative at its neutral value too.
    """
    return jnp.where(changed, new, old)


@where_changed.defjvp
def _(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    return where_changed(*primals), tangents[1]


def _operate(term: Resolved, x: jax.Array, value: jax.Array) -> jax.Array:
    if term.op == "set":
        return jnp.broadcast_to(value, x.shape)
    if term.op in ("add", "inject"):
        return x + value
    if term.op == "remove":
        direction = jnp.where(term.dims, value, 0)
        size = (direction * direction).sum(axis=-1, keepdims=True)
        return x - (x * direction).sum(axis=-1, keepdims=True) / jnp.where(size > 0, size, 1) * direction
    if term.centre is None:
        return x * value
    if term.centre == "dims":
        mu = x.mean(axis=-1, keepdims=True)
    else:
        seen = jnp.arange(1, x.shape[1] + 1, dtype=x.dtype)[None, :, None, None]
        mu = jnp.cumsum(x, axis=1) / seen
    return x + (value - 1) * (x - mu)


def _swap(x: jax.Array, pairs: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Exchange rows i and j of each prompt by permuting indices (exact); the cells counted are the two rows."""
    index = jnp.arange(x.shape[1])[None, :]
    i, j = pairs[:, :1], pairs[:, 1:]
    order = jnp.where(index == i, j, jnp.where(index == j, i, index))
    return jnp.take_along_axis(x, order[:, :, None], axis=1), ((index == i) | (index == j))[:, :, None]


def _pairs(term: Resolved, x: jax.Array, rows: jax.Array, layer: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Selected (query, key) pairs before and after the relation: bool, broadcastable to x [B, H, Q, S]."""
    query = jnp.take(term.query, rows, axis=1, mode="clip")
    selected = query[:, None, :, None] & term.key[:, None, None, : x.shape[-1]] & term.layer_head[layer][None, :, None, None]
    back = rows[:, None] - jnp.arange(x.shape[-1])[None, :]
    if term.distance is not None:
        selected &= ((back >= 0) & jnp.take(term.distance, back, mode="clip"))[None, None]
    same = (back == 0)[None, None]
    relation = {"any": True, "self": same, "others": ~same}[term.relation]
    return selected, selected & relation


def at_layer(value: jax.Array, layer: jax.Array | int) -> jax.Array:
    """Return a layer's entry of a [L or 1, ...] value."""
    return value[0] if value.shape[0] == 1 else value[layer]


def _real(lengths: jax.Array, T: int) -> jax.Array:
    return jnp.arange(T)[None, :] < lengths[:, None]


def _real_rows(lengths: jax.Array, rows: jax.Array) -> jax.Array:
    return (rows[None, :] < lengths[:, None])[:, None, :, None]


def _count(cells: jax.Array) -> jax.Array:
    """Count true cells per prompt as float32: exact up to 2^24, and 0 only if there are none."""
    return cells.sum(axis=tuple(range(1, cells.ndim)), dtype=jnp.float32)
