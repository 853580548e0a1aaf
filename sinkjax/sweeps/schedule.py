"""Who runs with whom in a sweep: edits of one kind and one base, sorted by the block at which they start, cut into chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np

from sinkjax.edits.term import Edits
from sinkjax.sweeps.sharing import Origin


@dataclass(frozen=True)
class Chunk:
    """Edits run in one call: their numbers in the list, the block they start from, and in whose run (an edit, None: unedited).

    A chunk that starts behind the last block has nothing to run: its record is that of its base.
    """

    kind: int
    edits: tuple[int, ...]
    start: int
    base: int | None = None


@dataclass(frozen=True)
class Schedule:
    """Who runs with whom; fixed when a store is made, so that a resumed sweep repeats the same calls.

    prompt_block: prompts per call. widths: edits per call of each kind (a smaller chunk is filled up). chunks: the calls for each
    block of prompts, those of one base in a row.
    """

    prompt_block: int
    widths: tuple[int, ...]
    chunks: tuple[Chunk, ...]

    def to_json(self) -> dict:
        """As plain lists and numbers."""
        chunks = [[chunk.kind, chunk.start, list(chunk.edits), chunk.base] for chunk in self.chunks]
        return {"prompt_block": self.prompt_block, "widths": list(self.widths), "chunks": chunks}

    @classmethod
    def from_json(cls, data: dict) -> Schedule:
        """The schedule that `to_json` wrote; those of stores made before edits shared a base name none."""
        chunks = tuple(Chunk(kind, tuple(edits), start, *base) for kind, start, edits, *base in data["chunks"])
        return cls(data["prompt_block"], tuple(data["widths"]), chunks)


def kind_of(edits: Edits) -> tuple:
    """The kind of a resolved edit: its pytree structure and the shapes of its arrays. One kind stacks, and compiles once."""
    return jax.tree.structure(edits), tuple((leaf.shape, str(leaf.dtype)) for leaf in jax.tree.leaves(edits))


def stack(edits: Sequence[Edits]) -> Edits:
    """Resolved edits of one kind, each array with a leading axis over edits."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *edits)


def cut_into_chunks(groups: Sequence[list[int]], widths: Sequence[int], starts: Sequence[Origin], L: int) -> tuple[Chunk, ...]:
    """Edits of one kind and base, in the order of their starts; those with nothing to run apart from the others."""
    parts: dict[tuple, list[int]] = {}
    for kind, numbers in enumerate(groups):
        for number in sorted(numbers, key=lambda number: starts[number].block):
            base, block = starts[number].base, starts[number].block
            parts.setdefault((base is not None, base, kind, block == L), []).append(number)
    return tuple(
        Chunk(kind, edits, starts[edits[0]].block, base)
        for (_, base, kind, _), numbers in sorted(parts.items(), key=lambda part: (part[0][0], part[0][1] or 0, *part[0][2:]))
        for edits in _cut(numbers, widths[kind])
    )


def _cut(numbers: Sequence[int], width: int) -> list[tuple[int, ...]]:
    """Consecutive parts of at most `width`."""
    return [tuple(numbers[i : i + width]) for i in range(0, len(numbers), width)]
