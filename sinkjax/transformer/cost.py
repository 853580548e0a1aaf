"""Cost of a forward pass: FLOPs of a block, and peak bytes alive."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from sinkjax.model.config import Config
from sinkjax.model.params import abstract
from sinkjax.transformer.attention import divides_last, query_groups, tile_size
from sinkjax.transformer.output import NLL_TOKENS


def block_parameters(config: Config) -> int:
    """Count the matrix entries of one block that a token uses; of the experts, only the active ones."""
    taken = 1.0 if config.experts is None else config.experts.active / config.experts.count
    leaves = [
        leaf for leaf in jax.tree.leaves(abstract(config)["layers"]) if leaf.init == "normal" and "buckets" not in leaf.axes
    ]
    mixed = [leaf for leaf in leaves if leaf.axes[1] == "expert"]
    rest = sum(math.prod(leaf.shape[1:]) for leaf in leaves if leaf.axes[1] != "expert")
    return rest + round(taken * sum(math.prod(leaf.shape[1:]) for leaf in mixed))


def block_flops(config: Config, T: int) -> int:
    """Return one block's FLOPs per token, counting attention to all keys that are computed, including hidden ones."""
    pairs = sum((end - begin) * max(end, min(config.prefix or 0, T)) for begin, end in query_groups(T))
    return 2 * block_parameters(config) + 4 * pairs * config.heads * config.head_dim // T


def widened_bytes(config: Config, dtype: str, kind: str) -> int:
    """Return the bytes of the float32 copy that XLA may make on a CPU of an embedding in 16 bits that also unembeds, or 0.

    XLA of JAX 0.10 makes it for a few tokens at a time, and that of JAX 0.12 does not.
    """
    widened = config.tied and kind == "cpu" and jnp.dtype(dtype).itemsize < 4
    return 4 * (config.embed_width or config.width) * (config.vocab_size or 0) if widened else 0


def run_bytes(config: Config, B: int, T: int, nll: bool, size: int, edited: bool) -> int:
    """Return peak bytes alive in one edited run of B prompts, excluding its record.

    The array counts match the memory that XLA reports for compiled runs (checked in tests/sweeps/test_plan.py).
    """
    wide = max(size, 4)
    heads = config.head_dim * (6 * config.heads + 2 * config.kv_heads) * size * (T > tile_size(T))  # split and joined again
    scores = (2 if divides_last(T, config, edited) else 3) * config.heads * tile_size(T) * wide
    taken = 1 if config.experts is None else 2 * config.experts.active  # rows of experts are padded to blocks
    block = B * T * max(heads + scores, 3 * taken * (config.mlp_width or 0) * size)
    loss = 2 * min(B * T, max(B, NLL_TOKENS)) * (config.vocab_size or 0) * wide if nll else 0
    return 4 * B * T * config.width * size + max(block, loss)
