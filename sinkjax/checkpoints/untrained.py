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
from sinkjax.checkpoints.names import leaf_name
from sinkjax.checkpoints.stream import load_params
from sinkjax.checkpoints.tensors import PIECE, Tensor
from sinkjax.model import params
from sinkjax.model.config import Config
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

    The numbers equal `params.init` with SEED and the standard deviation that the model's files state as
    `initializer_range`, by default INITIALIZER_RANGE. On one device programs draw them, leaf by leaf if these are large; on a
    mesh they are drawn in pieces, like tensors that are read from a file.
    """
    std = INITIALIZER_RANGE if checkpoint.initializer_range is None else checkpoint.initializer_range
    refuse_larger_than_memory("parameters", params.count(checkpoint.config) * jnp.dtype(dtype).itemsize)
    if mesh is None:
        return _draw_here(checkpoint.config, dtype, std)
    tensors = {
        leaf_name(path): drawn(leaf, params.leaf_key(SEED, path), std, np.dtype(jnp.dtype(dtype)))
        for path, leaf in jax.tree_util.tree_leaves_with_path(params.abstract(checkpoint.config))
    }
    return load_params(dataclasses.replace(checkpoint, tensors=tensors, names=None), dtype, mesh)


def _draw_here(config: Config, dtype: str, std: float) -> tuple[params.Params, str]:
    """Draw all parameters on the default device: each large leaf by itself, the largest first, so that few others lie beside what
    it needs; then the small ones together, by one program.
    """
    leaves = jax.tree_util.tree_leaves_with_path(params.abstract(config))
    sizes = [math.prod(leaf.shape) for _, leaf in leaves]
    large = sorted((place for place, size in enumerate(sizes) if size > PIECE), key=lambda place: -sizes[place])
    small = [place for place, size in enumerate(sizes) if size <= PIECE]
    found: dict[int, jax.Array] = {}
    for group in [*([place] for place in large), small]:
        names = [params.leaf_number(leaves[place][0]) for place in group]
        own = [leaves[place][1] for place in group]
        kinds = tuple((leaf.shape, leaf.init) for leaf in own)
        found |= zip(
            group, _program(names, [_places(leaf) for leaf in own], np.float32(std), kinds=kinds, dtype=dtype), strict=True
        )
    digest = hashlib.sha256()
    for place in range(len(leaves)):
        digest.update(np.asarray(found[place]).reshape(-1).view(np.uint8).data)
    tree = jax.tree.structure(params.abstract(config))
    return jax.tree.unflatten(tree, [found[place] for place in range(len(leaves))]), digest.hexdigest()


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


def drawn(leaf: params.Leaf, key: jax.Array, std: float, dtype: np.dtype) -> Tensor:
    """Return a leaf of random numbers in `dtype`, whose rows can be drawn separately."""
    row = math.prod(leaf.shape[1:])

    def part(start: int, stop: int) -> np.ndarray:
        numbers = np.empty((stop - start) * row, dtype)
        if leaf.init in params.CONSTANTS:
            numbers[:] = params.CONSTANTS[leaf.init]
            return numbers.view(np.uint8)
        for begin in range(0, len(numbers), PIECE):
            piece = numbers[begin : begin + PIECE]
            noise = normal(key, start * row + begin, len(piece))
            piece[:] = noise * np.float32(params.SMALL if leaf.init == "small" else std)
        return numbers.view(np.uint8)

    return Tensor(leaf.shape, lambda: part(0, leaf.shape[0]), lambda raw: raw.view(dtype), dtype.name, part=part)


def normal(key: jax.Array, start: int, count: int) -> np.ndarray:
    """Return `jax.random.normal(key, (start + count,))[start:]`, float32, without drawing the numbers before `start`."""
    high, low = divmod(start, 2**32)
    data = jnp.concatenate([jax.random.key_data(key), jnp.array([high, low], jnp.uint32)])
    drawn = jax.random.normal(jax.random.wrap_key_data(data, impl=_counter_impl()), (1 << (count - 1).bit_length(),))
    return np.asarray(drawn)[:count]  # draw a power of two, so that few sizes are compiled


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
