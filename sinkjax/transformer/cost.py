"""The cost of a forward pass: FLOPs of a block, and bytes alive at its widest point."""

from __future__ import annotations

import math

import jax

from sinkjax.model.config import Config
from sinkjax.model.params import abstract
from sinkjax.transformer.attention import block_size, divided_last, query_groups
from sinkjax.transformer.output import NLL_TOKENS


def block_parameters(config: Config) -> int:
    """Entries of the matrices of one block that a token meets, of experts only the ones that it takes."""
    taken = 1.0 if config.experts is None else config.experts.active / config.experts.count
    leaves = [
        leaf for leaf in jax.tree.leaves(abstract(config)["layers"]) if leaf.init == "normal" and "buckets" not in leaf.axes
    ]
    mixed = [leaf for leaf in leaves if leaf.axes[1] == "expert"]
    rest = sum(math.prod(leaf.shape[1:]) for leaf in leaves if leaf.axes[1] != "expert")
    return rest + round(taken * sum(math.prod(leaf.shape[1:]) for leaf in mixed))


def block_flops(config: Config, T: int) -> int:
    """FLOPs of one block per token; attention with all keys that are computed, hidden ones too."""
    pairs = sum((end - begin) * max(end, min(config.prefix or 0, T)) for begin, end in query_groups(T))
    return 2 * block_parameters(config) + 4 * pairs * config.heads * config.head_dim // T


def run_bytes(config: Config, B: int, T: int, nll: bool, size: int, edited: bool) -> int:
    """Bytes alive at the widest point of one edited run of B prompts, its record aside.

    The counts of arrays fit what XLA reports for compiled runs (tests/sweeps/test_plan.py holds them to it).
    """
    wide = max(size, 4)
    heads = config.head_dim * (6 * config.heads + 2 * config.kv_heads) * size * (T > block_size(T))  # cut and joined again
    scores = (2 if divided_last(T, config, edited) else 3) * config.heads * block_size(T) * wide
    taken = 1 if config.experts is None else 2 * config.experts.active  # rows of experts are padded to blocks
    block = B * T * max(heads + scores, 3 * taken * (config.mlp_width or 0) * size)
    loss = 2 * min(B * T, max(B, NLL_TOKENS)) * (config.vocab_size or 0) * wide if nll else 0
    return 4 * B * T * config.width * size + max(block, loss)
