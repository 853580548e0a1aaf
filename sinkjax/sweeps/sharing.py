"""Find the blocks that edits share, and choose the run and the block from which each edit starts.

Two runs that did the same up to a block have the same residual stream there. So every edit can start from the unedited run at the
first block that it changes. Edits that differ only in where along the layers they act, like masks of layers 0 to l, have more in
common with one of themselves; that one is then run first and is a base of its own.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np

from sinkjax.edits.site import BEFORE_BLOCKS
from sinkjax.edits.term import Edits, first_layer
from sinkjax.model.config import Config

WORTH = 2  # forwards that a base beside the unedited run must save: it takes a compilation


@dataclass(frozen=True)
class Origin:
    """Where an edit starts: in whose run (base: an edit by number, None: the unedited one) and behind how many shared blocks."""

    base: int | None
    block: int


def origins(resolved: Sequence[Edits], config: Config) -> list[Origin]:
    """The origin of each edit. An edit that is a base, or acts as its base does, shares all L blocks and runs none."""
    found = [Origin(None, first_layer(edits, config)) for edits in resolved]
    families: dict[tuple, list[int]] = {}
    for number, edits in enumerate(resolved):
        if edits and not any(term.site in BEFORE_BLOCKS for term in edits):  # these act before the first block
            families.setdefault(_content(edits), []).append(number)
    for numbers in families.values():
        first = np.array([found[number].block for number in numbers])
        base, common = _best_base([resolved[number] for number in numbers], first)
        if np.maximum(common - first, 0).sum() >= (1 + WORTH) * config.layers:
            for number, blocks, before in zip(numbers, common.tolist(), first.tolist(), strict=True):
                if blocks > before:
                    found[number] = Origin(numbers[base], blocks)
    return found


def _best_base(edits: Sequence[Edits], first: np.ndarray) -> tuple[int, np.ndarray]:
    """The edit that shares most blocks beyond `first` with the others, and the blocks each shares with it."""
    masks = np.stack([np.concatenate([np.asarray(term.layer_head) for term in entry], axis=1) for entry in edits])
    acts = np.unique(masks.reshape(-1, masks.shape[-1]), axis=0, return_inverse=True)[1]
    acts = acts.reshape(masks.shape[:2])  # [edits, L]: equal numbers where edits act on the same heads in a layer
    behind = np.ones((len(acts), 1), bool)  # where an edit that never differs does so
    shared = [np.append(acts != row, behind, axis=1).argmax(axis=1) for row in acts]
    base = int(np.argmax([np.maximum(common - first, 0).sum() for common in shared]))
    return base, shared[base]


def _content(edits: Edits) -> tuple:
    """All of an edit but its layers and heads: its structure, and digests of all its other arrays."""
    bare = [dataclasses.replace(term, layer_head=None) for term in edits]
    arrays = map(np.asarray, jax.tree.leaves(bare))
    digests = (hashlib.blake2b(f"{array.dtype}{array.shape}".encode() + array.tobytes()).digest() for array in arrays)
    return jax.tree.structure(bare), tuple(term.layer_head.shape for term in edits), tuple(digests)
