"""`untrained:SOURCE`: the architecture and tokenizer of a model with random weights, as its pretraining starts.

The control of a study on a trained model: what shows here too is the work of the architecture, not of training.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from sinkjax.checkpoints.model import Checkpoint
from sinkjax.checkpoints.tensors import PIECE
from sinkjax.model import params

PREFIX = "untrained:"
SEED = 0
INITIALIZER_RANGE = 0.02  # what the key's absence means in transformers, for Llama, Mistral and Qwen2 alike


def untrained(checkpoint: Checkpoint, name: str) -> Checkpoint:
    """The same checkpoint under the name `untrained:SOURCE`, its stored tensors, if any, left out."""
    assumed = dict(checkpoint.source["assumed"])
    if checkpoint.initializer_range is None:
        assumed["initializer_range"] = INITIALIZER_RANGE
    source = {**checkpoint.source, "kind": "untrained", "name": name, "assumed": assumed, "stored": None, "title": None}
    return dataclasses.replace(checkpoint, tensors={}, source=source)


def draw_params(checkpoint: Checkpoint, dtype: str, mesh: Mesh | None = None) -> tuple[params.Params, str]:
    """Random parameters, and the SHA-256 of their bytes in the order of the tree; arguments as for `stream.load_params`.

    Matrices and embeddings: normal with the standard deviation that the model's files state as `initializer_range`, by default
    INITIALIZER_RANGE. Norms: 1. Biases: 0. Each leaf draws from (SEED, its name).
    """
    std = INITIALIZER_RANGE if checkpoint.initializer_range is None else checkpoint.initializer_range
    init = functools.partial(params.init, checkpoint.config, dtype=dtype, std=std)
    drawn = init(SEED) if mesh is None else _in_shards(init, checkpoint, mesh)
    sha = hashlib.sha256()
    for leaf in jax.tree.leaves(drawn):
        for rows in host_rows(leaf):
            sha.update(rows.view(np.uint8).data)
    return drawn, sha.hexdigest()


def _in_shards(init: Callable[..., params.Params], checkpoint: Checkpoint, mesh: Mesh) -> params.Params:
    """One leaf after the other, of which each device draws its own part."""
    leaves, tree = jax.tree.flatten(params.abstract(checkpoint.config))
    drawn = []
    for number, leaf in enumerate(leaves):
        one = jax.jit(lambda seed, number=number: jax.tree.leaves(init(seed))[number], out_shardings=params.sharding(leaf, mesh))
        drawn.append(jax.block_until_ready(one(jnp.uint32(SEED))))
    return jax.tree.unflatten(tree, drawn)


def host_rows(leaf: jax.Array) -> Iterator[np.ndarray]:
    """All of a leaf in pieces along its first axis, on the host, put together from its shards."""
    if not leaf.is_fully_addressable:  # of several processes: each takes a copy
        assert isinstance(leaf.sharding, NamedSharding)
        everywhere = NamedSharding(leaf.sharding.mesh, PartitionSpec())
        leaf = jax.jit(lambda leaf: leaf, out_shardings=everywhere)(leaf)
    shards = {str(shard.index): shard for shard in leaf.addressable_shards}.values()  # each part once
    size = max(1, PIECE // math.prod(leaf.shape[1:]))
    for begin in range(0, leaf.shape[0], size):
        rows = np.empty((min(size, leaf.shape[0] - begin), *leaf.shape[1:]), leaf.dtype)
        for shard in shards:
            first, count = shard.index[0].start or 0, min(size, len(shard.data))
            start = min(max(begin - first, 0), len(shard.data) - count)  # a slice has one length, so as to compile once
            here = np.asarray(jax.lax.dynamic_slice_in_dim(shard.data, start, count))
            low, high = max(begin, first + start), min(begin + len(rows), first + start + count)
            if low < high:
                rows[(slice(low - begin, high - begin), *shard.index[1:])] = here[low - first - start : high - first - start]
        yield rows
