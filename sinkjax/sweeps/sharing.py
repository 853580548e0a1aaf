"""Find the blocks and rows that edits share, and choose the run, the block and the row from which each edit starts.

Two runs that are equal up to a block have the same residual stream there, so every edit can start from the unedited run at the
first block that it changes. Edits that differ only in the layers where they act, such as masks of layers 0 to l, share more
blocks with one another; one of them is then run first, as a base for the others.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import jax
import numpy as np

from sinkjax.edits.term import Edits, first_layer
from sinkjax.model.config import Config
from sinkjax.model.fingerprint import digest
from sinkjax.model.site import BEFORE_BLOCKS
from sinkjax.probes.probe import Probe
from sinkjax.probes.statistics import cut_by_rows
from sinkjax.transformer.cost import block_flops

LENGTHS = 3  # first rows of the calls of a sweep, next to 0: each is a program for each kind of edit
ROWS = 16  # first rows that are considered
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


def rows_can_be_shared(config: Config, probe: Probe, attention: str) -> bool:
    """Return whether rows before an edit are its base's, and their measurements can be told apart.

    A prefix sees later rows; other attention than the default has no keys of another run; and a statistic that mixes rows needs
    all of them.
    """
    return config.prefix is None and attention == "sinkjax" and all(map(cut_by_rows, probe.statistics))


def first_rows(
    resolved: Sequence[Edits], kinds: Sequence[Hashable], starts: Sequence[Origin], T: int, depth: int, price: float
) -> list[int]:
    """Choose the first row that each edit computes: at most its own, from a few for all edits, and 0 unless it pays.

    kinds: of the edits. T: positions. depth: blocks that run. price: forward passes that a program must save.
    """
    own = [min((*(term.first_row for term in edits), T - 1)) if edits else 0 for edits in resolved]
    blocks: dict[tuple[Hashable, int], int] = {}
    for kind, row, start in zip(kinds, own, starts, strict=True):
        if start.block < depth:
            blocks[kind, row] = blocks.get((kind, row), 0) + depth - start.block
    rows = np.array([row for _, row in blocks], int)
    options = np.unique(rows[rows > 0])
    options = options[:: -(-len(options) // ROWS) or 1].tolist()
    weights = np.array([*blocks.values()]) / (T * depth)
    best, most = (0,), 0.0
    for chosen in (chosen for count in range(LENGTHS) for chosen in itertools.combinations(options, count + 1)):
        cuts = np.array((0, *chosen))
        taken = cuts[np.searchsorted(cuts, rows, side="right") - 1]
        programs = {(kind, row) for (kind, _), row in zip(blocks, taken.tolist(), strict=True) if row}
        saved = (weights * taken).sum() - price * (len(programs) + 1)  # another baseline keeps keys and values
        if saved > most:
            best, most = tuple(cuts.tolist()), saved
    return [max(cut for cut in best if cut <= row) for row in own]


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
