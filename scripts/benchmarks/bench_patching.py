"""Measure activation patching in sinkjax, transformers, TransformerLens and nnsight: docs/results/benchmarks-full.md.

    python scripts/benchmarks/bench_patching.py             about ten minutes on two cores that have nothing else to do
    python scripts/benchmarks/bench_patching.py --every 1   all layers, about half an hour
    python scripts/benchmarks/bench_patching.py --quick     every sixth layer and fourth position, one round; prints the section

The residual stream of a corrupted prompt is replaced by a clean one's at every third layer and 16 positions, one at a time. The
others run the 16 positions of a layer as one batch (nnsight: as 16 invokes of one trace). All sides must give the same numbers
before any time counts. It makes an environment for TransformerLens and nnsight the first time.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from bench_peers import command
from bench_peers.command import say
from bench_peers.report import OURS
from bench_sweep import LAYERS, MATMUL, compare, in_turn, peers_python, start_ours, start_peers
from measured import Number, as_number

from sinkjax.report.markdown import table as markdown

LENGTH, POSITIONS, ROUNDS = 64, 16, 2
TASKS = {"last": "logits at the last position", "losses": "the loss of every token"}
SHARE = 0.85  # of what the counted products allow


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write or print the section."""
    parser = command.parser(__doc__, "bench_patching", "every sixth layer and fourth position, one round")
    parser.add_argument("--skip-peers", action="store_true", help="leave TransformerLens and nnsight out")
    parser.add_argument("--every", type=int, default=3, metavar="N", help="patch every Nth layer (default 3)")
    options = parser.parse_args(arguments)
    layers, positions, rounds = (6, 6, 1) if options.quick else (options.every, 1, ROUNDS)
    places = [*range(0, LENGTH, LENGTH // POSITIONS * positions)]
    cells: dict[str, Any] = {"layers": [*range(0, LAYERS, layers)], "positions": places}
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        folder, python = Path(name), None if options.skip_peers else peers_python()
        ours, chosen = start_ours(folder, 2, LENGTH)
        sides, versions = {OURS: ours}, {OURS: chosen["versions"]}
        for side, worker in start_peers(folder, python, "nnsight" if python else ""):
            sides[side], versions[side] = worker, worker.ask("read")["versions"]
        differences = {side: 0.0 for side in sides if side != OURS}
        for task, what in TASKS.items():
            reference: Mapping[str, np.ndarray] = {}
            for side, worker in sides.items():
                say(f"{side}: {what}, to compare its numbers")
                file = folder / f"{side}-{task}.npz"
                worker.ask("patch", save=str(file), task=task, **cells)
                with np.load(file) as arrays:
                    record = dict(arrays)
                reference = reference or record
                if side != OURS:
                    differences[side] = max(differences[side], *compare(f"{side}, {what}", record, reference).values())
        products = in_turn({"XLA": ours, "torch": sides["transformers"]}, "matmul", MATMUL, rounds, warm_up=1)
        seconds = {task: in_turn(sides, "patch", {"task": task, **cells}, rounds) for task in TASKS}
        saved = {task: ours.ask("saved", task=task, **cells) for task in TASKS}
        for worker in sides.values():
            worker.close()
    rates = median(products["torch"]) / median(products["XLA"])  # seconds of the same products
    found: list[Number] = []
    for task, what in TASKS.items():
        for side, taken in seconds[task].items():
            if side != OURS:
                ratios = [theirs / mine for theirs, mine in zip(taken, seconds[task][OURS], strict=True)]
                bound = saved[task]["times"] * rates
                goal = (round(SHARE * bound, 2), None) if side == "transformers" else (None, None)
                found.append(as_number(f"patching, {what}, times as fast as {side}", ratios, ".2f", goal, f"{bound:.2f}"))
    rows = [[side, *(command.span(seconds[task][side]) for task in TASKS)] for side in sides]
    text = command.filled(
        "patching",
        model=chosen["model"],
        edits=len(cells["layers"]) * len(cells["positions"]),
        layers=len(cells["layers"]),
        positions=len(cells["positions"]),
        length=LENGTH,
        rounds=rounds,
        load=f"{load:.2f}",
        versions="; ".join(f"{side}: " + ", ".join(f"{name} {v}" for name, v in versions[side].items()) for side in versions),
        seconds=markdown(["", *(f"{what}, s" for what in TASKS.values())], rows),
        goals=command.table_of(found),
        counted="; ".join(f"{saved[task]['times']:.2f} times for {what}" for task, what in TASKS.items()),
        rates=f"{rates:.2f}",
        share=f"{SHARE:.0%}",
        agreement=", ".join(f"{side} {value:.1e}" for side, value in differences.items()),
    )
    command.publish(text, options, found, near="bench_sweep")


if __name__ == "__main__":
    main()
