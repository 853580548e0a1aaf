"""Find the blocks that edits share, and choose the run and the block from which each edit starts.

Two runs that are equal up to a block have the same residual stream there, so every edit can start from the unedited run at the
first block that it changes. Edits that differ only in the layers where they act, such as masks of layers 0 to l, share more
blocks with one another; one of them is then run first, as a base for the others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np

from sinkjax.edits.term import Edits, first_layer
from sinkjax.model.config import Config
from sinkjax.model.fingerprint import digest
from sinkjax.model.site import BEFORE_BLOCKS
from sinkjax.transformer.cost import block_flops

# FLOPs that a base must save beyond its own pass: what a device computes in the seconds that two more programs take to compile.
WORTH = {"cpu": 2e11, "gpu": 1e15, "tpu": 1e15}


@dataclass(frozen=True)
class Origin:
    """Start of an edit: its base (an edit's index, or None for the unedited run) and the number of blocks that they share."""

    base: int | None
    block: int


def worth(config: Config, B: int, T: int, device: str) -> float:
    """Return the forward passes of B prompts of T positions that a base must save beyond its own, on this kind of device."""
    return WORTH[device] / (config.layers * block_flops(config, T) * B * T)


def origins(resolved: Sequence[Edits], config: Config, depth: int, least: float) -> list[Origin]:
    """Find the origin of each edit. An edit that is a base, or equal to its base, shares all blocks and runs none.

    depth: blocks that run. least: forward passes that a base must save beyond its own.
    """
    found = [Origin(None, min(first_layer(edits, config), depth)) for edits in resolved]
    families: dict[tuple, list[int]] = {}
    for number, edits in enumerate(resolved):
        if edits and not any(term.site in BEFORE_BLOCKS for term in edits):  # these act before the first block
            families.setdefault(_content(edits), []).append(number)
    for numbers in families.values():
        first = np.array([found[number].block for number in numbers])
        base, common = _best_base([resolved[number] for number in numbers], first)
        common = np.minimum(common, depth)
        if np.maximum(common - first, 0).sum() >= (1 + least) * depth:
            for number, blocks, before in zip(numbers, common.tolist(), first.tolist(), strict=True):
                if blocks > before:
                    found[number] = Origin(numbers[base], blocks)
    return found


def _best_base(edits: Sequence[Edits], first: np.ndarray) -> tuple[int, np.ndarray]:
    """The edit that shares most blocks beyond `first` with the others, and the blocks each shares with it."""
    masks = np.stack([np.concatenate([np.asarray(term.layer_head) for term in entry], axis=1) for entry in edits])
    acts = np.unique(masks.reshape(-1, masks.shape[-1]), axis=0, return_inverse=True)[1]
    acts = acts.reshape(masks.shape[:2])  # [edits, L]: equal numbers where edits act on the same heads in a layer
    behind = np.ones((len(acts), 1), bool)  # the place of a difference for edits that never differ
    shared = [np.append(acts != row, behind, axis=1).argmax(axis=1) for row in acts]
    base = int(np.argmax([np.maximum(common - first, 0).sum() for common in shared]))
    return base, shared[base]


def _content(edits: Edits) -> tuple:
    """Return all of an edit except its layers and heads: its structure, and a digest of its other arrays."""
    bare = [dataclasses.replace(term, layer_head=None) for term in edits]
    return jax.tree.structure(bare), tuple(term.layer_head.shape for term in edits), digest(*jax.tree.leaves(bare))
