"""The two Pallas kernels of `flash.py`: their tiling, and the computation in each tile.

Shape suffixes: B prompts, T positions, H query heads, K key-value heads, D head width, Q queries and N keys of a tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from sinkjax.edits.term import Resolved
from sinkjax.model import ops
from sinkjax.transformer.spec import ForwardSpec

LOWEST = -1e30  # a score below all others whose differences are finite

Arrays = dict[str, Any]  # the inputs of a tile other than queries and keys; see `flash._arrays`
Part = tuple[bool, Any, Any]  # whether a tile may hide a pair, and the first and last (exclusive) of these tiles
Cells = tuple[jax.Array, jax.Array]  # the addressed and the changed cells of a term in a tile, bool [Q, N]


@dataclass(frozen=True)
class Tiling:
    """The static part of both kernels.

    queries, keys: the sides of a tile. prefix: its length, 0 without one. edits: operation and relation of each term at LOGITS.
    precision: precision of products; a product of two 16-bit numbers is exact at any precision.
    """

    queries: int
    keys: int
    cap: float | None
    prefix: int
    edits: tuple[tuple[str, str], ...]
    precision: str

    @classmethod
    def of(cls, T: int, D: int, spec: ForwardSpec, terms: Sequence[Resolved], wide: bool) -> Tiling:
        """Choose tiles for T positions and heads of width D. wide: whether products have 32 bits or more.

        On a GPU, a tile of queries and three tiles each of keys and values must fit in the 228 kB of shared memory.
        """
        side = max(16, pl.next_power_of_2(T))
        less = (2 if wide else 1) * (2 if D > 128 else 1)
        rows, columns = (128, 128) if jax.default_backend() == "tpu" else (128 // less, 64 // less)
        return cls(
            min(side, rows),
            min(side, columns),
            spec.config.caps.scores,
            spec.config.prefix or 0,
            tuple((term.op, term.relation) for term in terms),
            spec.precision if wide else "default",
        )

    def keys_of(self, first: jax.Array, window: jax.Array, total: int) -> list[Part]:
        """Return the key tiles that the query tile at row `first` sees. total: the number of all tiles."""
        end = jnp.minimum(jnp.maximum((first + self.queries - 1) // self.keys + 1, pl.cdiv(self.prefix, self.keys)), total)
        begin = 0 if self.prefix else jnp.maximum(first - window + 1, 0) // self.keys
        return self._parts(begin, _up(first + self.queries - window, self.keys), (first + 1) // self.keys, end)

    def queries_of(self, first: jax.Array, window: jax.Array, total: int) -> list[Part]:
        """Return the query tiles at or after the key tile at column `first` that see it."""
        window = jnp.minimum(window, total * self.queries)
        end = total if self.prefix else jnp.minimum(_up(first + self.keys - 1 + window, self.queries), total)
        return self._parts(first // self.queries, _up(first + self.keys, self.queries), (first + window) // self.queries, end)

    def _parts(self, begin: Any, full_from: Any, full_to: Any, end: Any) -> list[Part]:
        """Split tiles `begin` to `end`: `full_from` to `full_to` hide nothing, unless edits or a prefix do."""
        if self.edits or self.prefix:
            return [(True, begin, end)]
        full_from = jnp.clip(full_from, begin, end)
        full_to = jnp.clip(full_to, full_from, end)
        return [(True, begin, full_from), (False, full_from, full_to), (True, full_to, end)]


def _up(x: jax.Array, side: int) -> jax.Array:
    """Return the number of tiles needed for x places; 0 if x is negative."""
    return (jnp.maximum(x, 0) + side - 1) // side


def padded(x: jax.Array, tiling: Tiling) -> jax.Array:
    """Zero-pad x [B, heads, T, D] to whole tiles in T and, as Triton requires, a power of two in D."""
    T, D = x.shape[2:]
    missing = -T % max(tiling.queries, tiling.keys), max(16, pl.next_power_of_2(D)) - D
    return jnp.pad(x, [(0, 0), (0, 0), (0, missing[0]), (0, missing[1])]) if any(missing) else x


def forward(
    q: jax.Array, k: jax.Array, v: jax.Array, extra: jax.Array | None, arrays: Arrays, tiling: Tiling
) -> tuple[jax.Array, jax.Array, list[jax.Array]]:
    """Return head outputs [B, H, T, D] in the dtype of v, log-sum-exps [B, H, T, 1], and cell counts by row.

    q [B, H, T, D], k [B, K, T, D], v [B, K or H, T, D]; T a multiple of both sides of a tile, D a power of two.
    extra: scores [B, H, T, 1] of an extra key or a sink logit, which enter each row's sum. A row that sees nothing has 0 for
    both. Each count is [B, H, T, 1]: addressed and changed for each term, and last, if there is one, the keys seen.
    """
    B, H, T, D = q.shape
    wide = jnp.promote_types(q.dtype, jnp.float32)
    row = partial(pl.BlockSpec, index_map=lambda b, h, i: (b, h, i, 0))
    column = row((None, None, tiling.queries, 1))
    number = jax.ShapeDtypeStruct((B, H, T, 1), wide)
    cells = 2 * len(tiling.edits) + bool(tiling.edits)
    out, lse, *counts = pl.pallas_call(
        partial(_forward, tiling=tiling),
        grid=(B, H, T // tiling.queries),
        in_specs=[
            row((None, None, tiling.queries, D)),
            *(_whole(x, H) for x in (k, v)),
            None if extra is None else column,
            _specs(arrays, tiling.queries, 2),
        ],
        out_specs=[row((None, None, tiling.queries, D)), *[column] * (1 + cells)],
        out_shape=[jax.ShapeDtypeStruct((B, H, T, D), v.dtype), *[number] * (1 + cells)],
        **_device(),
        name="attention",
    )(q, k, v, extra, arrays)
    return out, lse, counts


def columns(q: jax.Array, k: jax.Array, lse: jax.Array, arrays: Arrays, tiling: Tiling, *, later: bool) -> jax.Array:
    """Sums over the queries of each prompt, from the key on or (`later`) after it, of the weight on each key: [B, H, 1, T].

    lse: from `forward`, but larger than all scores beyond the prompt. `forward` describes all other arguments.
    """
    B, H, T, D = q.shape
    share = H // k.shape[1]
    sums: jax.Array = pl.pallas_call(
        partial(_columns, tiling=tiling, later=later),
        grid=(B, H, T // tiling.keys),
        in_specs=[
            _whole(q, H),
            pl.BlockSpec((None, None, tiling.keys, D), lambda b, h, j: (b, h // share, j, 0)),
            _whole(lse, H),
            _specs(arrays, tiling.keys, 3),
        ],
        out_specs=pl.BlockSpec((None, None, 1, tiling.keys), lambda b, h, j: (b, h, 0, j)),
        out_shape=jax.ShapeDtypeStruct((B, H, 1, T), lse.dtype),
        **_device(),
        name="attention_received",
    )(q, k, lse, arrays)
    return sums


def _forward(q_ref: Any, k_ref: Any, v_ref: Any, extra_ref: Any, refs: Any, *outputs: Any, tiling: Tiling) -> None:
    """First kernel: a query tile and all keys that it sees, with the running maximum of Milakov and Gimelshein (2018)."""
    out_ref, lse_ref, *count_refs = outputs
    first = pl.program_id(2) * tiling.queries
    q, wide = q_ref[...], lse_ref.dtype
    given = _loaded({name: ref for name, ref in refs.items() if name != "edits"})

    def step(hides: bool, j: jax.Array, carry: tuple) -> tuple:
        top, total, mixed, counts = carry
        keys = pl.ds(pl.multiple_of(j * tiling.keys, tiling.keys), tiling.keys)
        of_tile = given | _loaded({"edits": refs["edits"]}, keys=keys)
        scores, visible, cells = _tile(q, k_ref[keys, :], first, j * tiling.keys, of_tile, tiling)
        scores = jnp.where(visible, scores, LOWEST) if hides else scores
        new = jnp.maximum(top, scores.max(axis=1, keepdims=True))
        powers = jnp.exp(scores - new)
        powers = jnp.where(visible, powers, 0) if hides else powers  # if all are hidden, so is the maximum
        shrunk = jnp.exp(top - new)
        values = v_ref[keys, :]
        mixed = mixed * shrunk + _product(powers.astype(values.dtype), values, (1, 0), wide, tiling.precision)
        flat = [each for pair in cells for each in pair] + ([visible] if cells else [])
        counts = [count + each.astype(wide).sum(axis=1, keepdims=True) for count, each in zip(counts, flat, strict=True)]
        return new, total * shrunk + powers.sum(axis=1, keepdims=True), mixed, counts

    column = (tiling.queries, 1)
    top = jnp.full(column, LOWEST, wide) if extra_ref is None else extra_ref[...].astype(wide)
    total = jnp.zeros(column, wide) if extra_ref is None else jnp.ones(column, wide)
    carry = (top, total, jnp.zeros((tiling.queries, v_ref.shape[-1]), wide), [jnp.zeros(column, wide) for _ in count_refs])
    for hides, begin, end in tiling.keys_of(first, given["window"][0, 0], k_ref.shape[0] // tiling.keys):
        carry = jax.lax.fori_loop(begin, end, partial(step, hides), carry)
    top, total, mixed, counts = carry
    some = total > 0
    out_ref[...] = (mixed / jnp.where(some, total, 1)).astype(out_ref.dtype)
    lse_ref[...] = jnp.where(some, top + jnp.log(jnp.where(some, total, 1)), 0)
    for ref, count in zip(count_refs, counts, strict=True):
        ref[...] = count


def _columns(q_ref: Any, k_ref: Any, lse_ref: Any, refs: Any, out_ref: Any, *, tiling: Tiling, later: bool) -> None:
    """Second kernel: a key tile and all queries at or after it that see it."""
    first = pl.program_id(2) * tiling.keys
    k = k_ref[...]
    given = _loaded({name: ref for name, ref in refs.items() if name != "edits"})

    def step(hides: bool, i: jax.Array, summed: jax.Array) -> jax.Array:
        rows = pl.ds(pl.multiple_of(i * tiling.queries, tiling.queries), tiling.queries)
        of_tile = given | _loaded({"edits": refs["edits"]}, rows=rows)
        scores, visible, _ = _tile(q_ref[rows, :], k, i * tiling.queries, first, of_tile, tiling)
        if hides:
            counted = visible & (_places(i * tiling.queries, first, tiling)[1] >= int(later))
            scores = jnp.where(counted, scores, LOWEST)
        return summed + jnp.exp(scores - lse_ref[rows, :])

    summed = jnp.zeros((tiling.queries, tiling.keys), out_ref.dtype)
    for hides, begin, end in tiling.queries_of(first, given["window"][0, 0], q_ref.shape[0] // tiling.queries):
        summed = jax.lax.fori_loop(begin, end, partial(step, hides), summed)
    out_ref[...] = summed.sum(axis=0, keepdims=True)


def _tile(
    q: jax.Array, k: jax.Array, row: jax.Array, column: jax.Array, given: Arrays, tiling: Tiling
) -> tuple[jax.Array, jax.Array, list[Cells]]:
    """Return edited scores and visibility [Q, N] of the tile at `row` and `column`, and its cell counts."""
    wide = given["scale"].dtype
    rows, back = _places(row, column, tiling)
    scores = ops.soft_cap(_product(q, k, (1, 1), wide, tiling.precision) * given["scale"], tiling.cap)
    if given["slope"] is not None:
        scores += given["slope"] * jnp.maximum(back, 0).astype(wide)
    visible = (back >= 0) & (back < given["window"])
    if tiling.prefix:
        visible |= rows - back < jnp.minimum(given["length"], tiling.prefix)
    cells = []
    for (op, relation), term in zip(tiling.edits, given["edits"], strict=True):
        selected = (term["query"] * term["key"] * term["head"]) > 0
        addressed = selected & visible & (rows < given["length"])
        chosen = selected & {"any": back == back, "self": back == 0, "others": back != 0}[relation]
        hides = term["hides"] > 0
        value = scores + term["value"] if op == "add" else jnp.broadcast_to(term["value"], scores.shape)
        edited = jnp.where(chosen & ~hides, value, scores)
        remaining = visible & ~(chosen & hides)
        cells.append((addressed, addressed & ((remaining != visible) | (remaining & (edited != scores)))))
        scores, visible = edited, remaining
    return scores, visible, cells


def _places(row: jax.Array, column: jax.Array, tiling: Tiling) -> tuple[jax.Array, jax.Array]:
    """Return the positions of a tile's queries, and the distance back from each to each key: int [Q, N]."""
    rows = row + jax.lax.broadcasted_iota(jnp.int32, (tiling.queries, tiling.keys), 0)
    return rows, rows - column - jax.lax.broadcasted_iota(jnp.int32, (tiling.queries, tiling.keys), 1)


def _product(a: jax.Array, b: jax.Array, axes: tuple[int, int], wide: jnp.dtype, precision: str) -> jax.Array:
    """Multiply two matrices over one axis of each, accumulating in `wide`."""
    contracted = (((axes[0],), (axes[1],)), ((), ()))
    return jax.lax.dot_general(a, b, contracted, precision=precision, preferred_element_type=wide)


def _loaded(refs: Any, rows: Any = slice(None), keys: Any = slice(None)) -> Any:
    """Load the arrays at these rows and keys, along the axes that they have."""
    everything = slice(None)
    return jax.tree.map(lambda ref: ref[rows if ref.shape[0] > 1 else everything, keys if ref.shape[1] > 1 else everything], refs)


def _specs(arrays: Arrays, side: int, tiled: int) -> Arrays:
    """Specify the part of each array that program (prompt, head, tile) reads: tiles of `side` along axis `tiled`, 2 or 3."""

    def spec(x: jax.Array) -> pl.BlockSpec:
        split = x.shape[tiled] > 1
        shape = [side if split and axis == tiled else x.shape[axis] for axis in (2, 3)]

        def place(b: Any, h: Any, i: Any) -> tuple:
            tile = [i if split and axis == tiled else 0 for axis in (2, 3)]
            return (b if x.shape[0] > 1 else 0, h if x.shape[1] > 1 else 0, *tile)

        return pl.BlockSpec((None, None, *shape), place)

    specs: Arrays = jax.tree.map(spec, arrays)
    return specs


def _device() -> dict[str, Any]:
    """Return how this device runs a kernel."""
    match jax.default_backend():
        case "cpu":
            return {"interpret": True}
        case "tpu":
            return {}
    from jax.experimental.pallas import triton

    return {"compiler_params": triton.CompilerParams(num_warps=8, num_stages=3)}


def _whole(x: jax.Array, H: int) -> pl.BlockSpec:
    """Specify all rows of a prompt's head in x [B, K or H, T, D]; query heads share the rows of their group."""
    share = H // x.shape[1]
    return pl.BlockSpec((None, None, *x.shape[2:]), lambda b, h, i: (b, h // share, 0, 0))
