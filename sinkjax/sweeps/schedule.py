"""A sweep's schedule: edits of one kind and one base, sorted by their first block and cut into chunks.

One device computes a chunk of edits on a block of prompts in one call. A schedule does not depend on the number of devices: its
calls are dealt to the devices of the current machine, which may differ when a sweep is resumed.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import jax
import numpy as np

from sinkjax.edits.term import Edits
from sinkjax.sweeps.sharing import Origin


@dataclass(frozen=True)
class Chunk:
    """Edits run in one call: their indices, the block and the row they start from, and the run that they start in (an edit, or
    None: unedited).

    A chunk that starts after the last block runs nothing and has the record of its base.
    """

    kind: int
    edits: tuple[int, ...]
    start: int
    base: int | None = None
    row: int = 0


@dataclass(frozen=True)
class Schedule:
    """The calls of a sweep, fixed when a store is made, so that a resumed sweep repeats them.

    prompt_block: prompts per call. widths: edits per call of each kind (a smaller chunk is padded). chunks: the calls for each
    block of prompts, with the chunks of one base in a row.
    """

    prompt_block: int
    widths: tuple[int, ...]
    chunks: tuple[Chunk, ...]

    @property
    def cuts(self) -> tuple[int, ...]:
        """The first rows of calls that leave some to their base."""
        return tuple(sorted({chunk.row for chunk in self.chunks} - {0}))

    def calls(self, B: int) -> list[tuple[int, Chunk]]:
        """All calls for B prompts: (block of prompts, chunk of edits)."""
        return [(block, chunk) for block in range(-(-B // self.prompt_block)) for chunk in self.chunks]

    def shares(self, B: int, devices: int, processes: int, L: int) -> list[list[Round]]:
        """Return the rounds of each of several independent processes with this many devices each.

        All calls are dealt to all devices, so that whole runs go to one device while there are enough of them.
        """
        rounds = deal(self.calls(B), devices * processes, L)
        own = [slice(first, first + devices) for first in range(0, devices * processes, devices)]
        return [[Round(entry.runs[part], entry.chunks[part]) for entry in rounds if any(entry.chunks[part])] for part in own]

    def to_json(self) -> dict:
        """Return the schedule as plain lists and numbers."""
        chunks = [
            [chunk.kind, chunk.start, [*chunk.edits], chunk.base, *([chunk.row] * (chunk.row > 0))] for chunk in self.chunks
        ]
        return {"prompt_block": self.prompt_block, "widths": list(self.widths), "chunks": chunks}

    @classmethod
    def from_json(cls, data: dict) -> Schedule:
        """Read a schedule written by `to_json`."""
        chunks = tuple(Chunk(kind, tuple(edits), start, *rest) for kind, start, edits, *rest in data["chunks"])
        return cls(data["prompt_block"], tuple(data["widths"]), chunks)


@dataclass(frozen=True)
class Round:
    """The calls that devices make simultaneously with one program, each from its own run and start.

    runs: for each device, the block of prompts and the base where it starts. chunks: one per device, None if it is idle. All have
    the same kind, and either all or none have blocks to run.
    """

    runs: tuple[tuple[int, int | None], ...]
    chunks: tuple[Chunk | None, ...]

    def calls(self) -> Iterator[tuple[int, int, Chunk]]:
        """List (device, block of prompts, chunk) for each call."""
        for device, ((block, _), chunk) in enumerate(zip(self.runs, self.chunks, strict=True)):
            if chunk is not None:
                yield device, block, chunk


def deal(calls: Iterable[tuple[int, Chunk]], devices: int, L: int) -> list[Round]:
    """Deal calls (block of prompts, chunk of edits) to devices: by prompts first, then by edits among devices that share prompts.

    Each device computes a run and its chunks, with as many runs at a time as devices. If there are fewer runs, several devices
    compute each one, and its chunks are dealt to them, longest first, each to the device with the least work. L: layers.
    """
    of_run: dict[tuple[int, int | None], list[Chunk]] = {}
    for block, chunk in calls:
        of_run.setdefault((block, chunk.base), []).append(chunk)
    stages: dict[int | None, list[tuple[int, int | None]]] = {}  # runs by the kind of their base, which its chunks share
    for run, chunks in of_run.items():
        stages.setdefault(None if run[1] is None else chunks[0].kind, []).append(run)
    rounds: list[Round] = []
    for runs in stages.values():
        runs.sort(key=lambda run: -len(of_run[run]))  # so that runs of similar duration are simultaneous
        for first in range(0, len(runs), devices):
            rounds += _deal_wave(of_run, runs[first : first + devices], devices, L)
    return rounds


def _deal_wave(of_run: dict, runs: Sequence[tuple[int, int | None]], devices: int, L: int) -> Iterator[Round]:
    """Return the rounds of at most one run per device."""
    places = tuple(runs[device % len(runs)] for device in range(devices))
    load = [0] * devices
    programs: dict[Hashable, None] = {(chunk.kind, chunk.start == L): None for run in runs for chunk in of_run[run]}
    for program in programs:
        hands: list[list[Chunk]] = [[] for _ in places]
        for number, run in enumerate(runs):
            chunks = [chunk for chunk in of_run[run] if (chunk.kind, chunk.start == L) == program]
            own = range(number, devices, len(runs))
            chunks.sort(key=lambda chunk: chunk.start)
            for first in range(0, len(chunks), len(own)):
                by_load = sorted(own, key=lambda device: load[device])
                for device, chunk in zip(by_load, chunks[first : first + len(own)], strict=False):
                    hands[device].append(chunk)
                    load[device] += (L - chunk.start) * len(chunk.edits)
        for turn in range(max(map(len, hands))):
            yield Round(places, tuple(hand[turn] if turn < len(hand) else None for hand in hands))


def kind_of(edits: Edits) -> tuple:
    """Return a resolved edit's kind: its pytree structure and array shapes. Edits of one kind stack and compile once."""
    return jax.tree.structure(edits), tuple((leaf.shape, str(leaf.dtype)) for leaf in jax.tree.leaves(edits))


def stack(edits: Sequence[Edits]) -> Edits:
    """Stack resolved edits of one kind: each array gets a leading edit axis."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *edits)


def cut_into_chunks(
    groups: Sequence[list[int]], widths: Sequence[int], starts: Sequence[Origin], rows: Sequence[int], L: int
) -> tuple[Chunk, ...]:
    """Cut edits of one kind, base and first row into chunks, in order of their starts; edits that run nothing are separate."""
    parts: dict[tuple, list[int]] = {}
    for kind, numbers in enumerate(groups):
        for number in sorted(numbers, key=lambda number: starts[number].block):
            base, block = starts[number].base, starts[number].block
            parts.setdefault((base is not None, base, kind, block == L), []).append(number)
    return tuple(
        Chunk(kind, tuple(numbers[first : first + widths[kind]]), starts[numbers[first]].block, base, rows[numbers[first]])
        for (_, base, kind, _), numbers in sorted(parts.items(), key=lambda part: (part[0][0], part[0][1] or 0, *part[0][2:]))
        for first in range(0, len(numbers), widths[kind])
    )
