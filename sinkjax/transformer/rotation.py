"""Rotate queries and keys: a pass makes one function of its rotary tables, which each block calls with its tape."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from sinkjax.edits.term import Edits
from sinkjax.model import rope
from sinkjax.model.config import Config
from sinkjax.model.rotary import LayerRopes
from sinkjax.model.site import Site
from sinkjax.transformer.tape import Tape

Pair = tuple[jax.Array, jax.Array]


def rotary(
    config: Config, lengths: jax.Array, index: jax.Array, dtype: jnp.dtype, edits: Edits, past: int = 0
) -> Callable[[Tape, jax.Array, jax.Array], Pair]:
    """Make a function of (tape, queries, keys) that rotates them at positions past + `index` [1 or B, T].

    The tables are computed once unless POSITION is edited. Edits count positions without the past.
    """
    if not config.ropes:
        return lambda tape, q, k: (q, k)
    frequencies, placed = rotations(config, lengths, dtype), past + index
    edited = any(term.site == Site.POSITION for term in edits)
    made = [] if edited else [rope.tables(placed, *kind) for kind in frequencies]

    def rotate(tape: Tape, q: jax.Array, k: jax.Array) -> Pair:
        if not edited:
            tables = of_layer(made, config, tape.layer)
            return rope.grown(rope.rotate(q, *tables), placed, config.ropes[0]), rope.rotate(k, *tables)
        kind = of_layer(frequencies, config, tape.layer)
        of_queries, of_keys = (past + each for each in tape.positions(index, index))
        q = rope.grown(rope.rotate(q, *rope.tables(of_queries, *kind)), of_queries, config.ropes[0])
        return q, rope.rotate(k, *rope.tables(of_keys, *kind))

    return rotate


def rotary_by_index(config: Config, lengths: jax.Array, dtype: jnp.dtype) -> Callable[..., jax.Array]:
    """Make a function that rotates vectors [B, S, heads, D] by rotary indices [S] in a layer, if the model uses rotation."""
    frequencies = rotations(config, lengths, dtype)

    def rotate(x: jax.Array, index: jax.Array, layer: jax.Array) -> jax.Array:
        return rope.rotate(x, *rope.tables(index[None], *of_layer(frequencies, config, layer))) if frequencies else x

    return rotate


def rotations(config: Config, lengths: jax.Array, dtype: jnp.dtype) -> list[Pair]:
    """Return the frequencies and the factor of each kind of rotary positions, then 0 and 1 for layers without rotation."""
    kinds = [rope.frequencies(kind, config.head_dim, lengths, dtype) for kind in config.ropes]
    return [(each, jnp.asarray(factor, dtype)) for each, factor in [*kinds, *((0 * each, 1.0) for each, _ in kinds[:1])]]


def of_layer(by_kind: list[Pair], config: Config, layer: jax.Array) -> Pair:
    """Select a layer's pair of arrays from a list with a pair for each kind of rotation."""
    if not isinstance(config.position, LayerRopes):
        return by_kind[0]
    kind = jnp.asarray([len(by_kind) - 1 if kind is None else kind for kind in config.position.layers])[layer]
    first, second = (jnp.stack(jnp.broadcast_arrays(*each))[kind] for each in zip(*by_kind, strict=True))
    return first, second
