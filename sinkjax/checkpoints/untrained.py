"""`untrained:SOURCE`: the architecture and tokenizer of a model with random weights, as at the start of pretraining.

Use this as a control for trained models: an effect that also appears with random weights comes from the architecture, not from
training.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
from typing import Any

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from sinkjax.checkpoints.model import Checkpoint
from sinkjax.checkpoints.tensors import PIECE
from sinkjax.model import params
from sinkjax.runtime.backend import refuse_larger_than_memory
from sinkjax.runtime.settings import random_key

PREFIX = "untrained:"
SEED = 0
INITIALIZER_RANGE = 0.02  # transformers' default for Llama, Mistral and Qwen2


def untrained(checkpoint: Checkpoint, name: str) -> Checkpoint:
    """Return the same checkpoint under the name `untrained:SOURCE`, without its stored tensors."""
    assumed = dict(checkpoint.source["assumed"])
    if checkpoint.initializer_range is None:
        assumed["initializer_range"] = INITIALIZER_RANGE
    source = {**checkpoint.source, "kind": "untrained", "name": name, "assumed": assumed, "stored": None, "title": None}
    return dataclasses.replace(checkpoint, tensors={}, source=source)


def draw_params(checkpoint: Checkpoint, dtype: str, mesh: Mesh | None = None) -> tuple[params.Params, str]:
    """Draw random parameters, and the SHA-256 of their bytes in the order of the tree; arguments as for `load_params`.

    The numbers equal `params.init` with SEED and the standard deviation that the model's files state as `initializer_range`, by
    default INITIALIZER_RANGE. Each large leaf is drawn by itself, the largest first, so that few others lie beside what it needs;
    the small ones are drawn together, by one program. On a mesh, each leaf is drawn by itself and then distributed.
    """
    config, std = checkpoint.config, checkpoint.initializer_range
    refuse_larger_than_memory("parameters", params.count(config) * jnp.dtype(dtype).itemsize)
    paths, leaves = zip(*jax.tree_util.tree_leaves_with_path(params.abstract(config)), strict=True)
    sizes, digest = [math.prod(leaf.shape) for leaf in leaves], hashlib.sha256()
    large = sorted((place for place, size in enumerate(sizes) if size > PIECE), key=lambda place: -sizes[place])
    groups = [*([place] for place in large), [place for place, size in enumerate(sizes) if size <= PIECE]]
    drawn: dict[int, jax.Array] = {}
    for group in groups if mesh is None else [[place] for place in range(len(leaves))]:
        names = [params.leaf_number(paths[place]) for place in group]
        kinds = tuple((leaves[place].shape, leaves[place].init) for place in group)
        starts, scale = [_places(leaves[place]) for place in group], np.float32(INITIALIZER_RANGE if std is None else std)
        drawn |= zip(group, _program(names, starts, scale, kinds=kinds, dtype=dtype), strict=True)
        if mesh is not None:
            host = np.asarray(drawn[group[0]])
            digest.update(host.reshape(-1).view(np.uint8).data)
            shards = params.sharding(leaves[group[0]], mesh)
            drawn[group[0]] = jax.make_array_from_callback(host.shape, shards, host.__getitem__)
    for place in range(len(leaves)) if mesh is None else ():
        digest.update(np.asarray(drawn[place]).reshape(-1).view(np.uint8).data)
    tree = jax.tree.structure(params.abstract(config))
    return jax.tree.unflatten(tree, [drawn[place] for place in range(len(leaves))]), digest.hexdigest()


def _places(leaf: params.Leaf) -> np.ndarray:
    """Return the index of the first number of each of a leaf's equal pieces, in two halves: uint32 [pieces, 2]."""
    size = 1 if leaf.init in params.CONSTANTS else math.prod(leaf.shape)
    count = next(count for count in range(-(-size // PIECE), size + 1) if size % count == 0)
    starts = np.arange(count, dtype=np.uint64) * np.uint64(size // count)
    return np.stack([starts >> np.uint64(32), starts], axis=1).astype(np.uint32)


@functools.partial(jax.jit, static_argnames=("kinds", "dtype"))
def _program(
    names: list[jax.Array], places: list[jax.Array], std: jax.Array, *, kinds: tuple[tuple[tuple[int, ...], str], ...], dtype: str
) -> list[jax.Array]:
    """Draw leaves piece by piece. names: uint32, the number of each leaf's path. kinds: shape and initialiser of each.

    A loop collects 16-bit floats as integers, because XLA's CPU code would convert all numbers so far to float32 and back at each
    step. Other floats are collected as they are, which spares a copy of the leaf.
    """
    collected = jnp.uint16 if jnp.dtype(dtype).itemsize == 2 else dtype

    def leaf(name: jax.Array, places: jax.Array, shape: tuple[int, ...], init: str) -> jax.Array:
        if init in params.CONSTANTS:
            return jnp.full(shape, params.CONSTANTS[init], dtype)
        key = jax.random.key_data(jax.random.fold_in(random_key(SEED), name))
        scale = jnp.float32(params.SMALL) if init == "small" else std  # an argument, which no simplification merges

        def piece(place: jax.Array) -> jax.Array:
            data = jax.random.wrap_key_data(jnp.concatenate([key, place]), impl=_counter_impl())
            noise = jax.lax.optimization_barrier(jax.random.normal(data, (math.prod(shape) // len(places),)))
            return (noise * scale).astype(dtype).view(collected)

        return jax.lax.map(piece, places).view(dtype).reshape(shape)

    return [leaf(name, at, *kind) for name, at, kind in zip(names, places, kinds, strict=True)]


@functools.cache
def _counter_impl() -> Any:
    """JAX's generator with a key of four numbers: its key, and the index, in two halves, of the first number to draw."""

    def bits(key: jax.Array, width: int, shape: tuple[int, ...]) -> jax.Array:
        assert width == 32
        first, second, high, low = key
        count = math.prod(shape)
        lows = low + jnp.arange(count, dtype=jnp.uint32)
        highs = high + (lows < low).astype(jnp.uint32)  # the lower half overflowed
        both = jax.extend.random.threefry_2x32((first, second), jnp.concatenate([highs, lows]))
        return (both[:count] ^ both[count:]).reshape(shape)

    def unused(*_: Any) -> Any:
        raise AssertionError("such a key can only draw numbers")

    return jax.extend.random.define_prng_impl(
        key_shape=(4,), seed=unused, split=unused, random_bits=bits, fold_in=unused, name="threefry2x32_from", tag="tff"
    )
