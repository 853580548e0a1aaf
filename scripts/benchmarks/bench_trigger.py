"""Measure training on the trigger task, alone and 64 seeds at once, beside plain PyTorch: docs/results/benchmarks-full.md.

    python scripts/benchmarks/bench_trigger.py             about five minutes on two cores that have nothing else to do
    python scripts/benchmarks/bench_trigger.py --quick     a smoke run; prints the section and writes nothing

It needs the extra `test`. Both sides must give the same loss and gradient before any time counts.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from bench_peers import command
from bench_peers.command import filled, say, span, table_of
from bench_peers.worker import Worker
from measured import Number, as_number

from sinkjax.report.markdown import table as markdown

REFERENCE, FAIR, OURS = "PyTorch, sequences one by one", "PyTorch, batches at once", "sinkjax"
SIZES = {"1 x 1": (1, 1), "2 x 2": (2, 2), "4 x 4": (4, 4)}  # layers x heads
NORMALISERS = {"softmax": "softmax", "relu-index": "relu"}  # sinkjax's name -> that of the peer
SEEDS = 64
PUBLISHED = 14.0  # ms a step at 1 x 1 of the paper's own code, taken by others on two cores of a machine of this kind
GOALS = {"alone": 20.0, f"{SEEDS} runs": 40.0}  # times as fast as that
TOLERANCE = 1e-4
B, T, N = 128, 16, 16  # sequences, tokens, numbers in a token


@dataclass(frozen=True)
class Effort:
    """How much is measured. rounds: of everything. steps: (layers, heads) -> those of a run alone; runs together make a tenth."""

    rounds: int
    steps: Mapping[tuple[int, int], int]
    seeds: int


FULL = Effort(3, {(1, 1): 600, (2, 2): 400, (4, 4): 200}, SEEDS)
QUICK = Effort(1, {(1, 1): 300, (2, 2): 200, (4, 4): 200}, 2)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write or print the section."""
    options = command.parser(__doc__, "bench_trigger", "2 seeds, 1 round").parse_args(arguments)
    found = measure(QUICK if options.quick else FULL)
    command.publish(section(*found), options, numbers(found[1]))


def measure(effort: Effort) -> tuple[dict[str, Any], dict[tuple[str, str, str], list[float]]]:
    """About the machine and the agreement, and milliseconds of a step of one run by (size, normaliser, way), a round each."""
    about: dict[str, Any] = {"load": os.getloadavg()[0], "effort": effort}
    times: dict[tuple[str, str, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ours, torch = Worker("trigger_sinkjax", folder), Worker("trigger_torch", folder)
        about |= ours.ask("versions")
        about["versions"] = about["versions"] | torch.ask("versions")["versions"]
        about["difference"] = max(agreement(ours, torch, folder, *size, name) for size in SIZES.values() for name in NORMALISERS)
        about["products"] = ours.ask("products")["gflops"]
        about["parts"] = ours.ask("parts", layers=1, heads=1, normaliser="softmax", steps=200)
        for number in range(effort.rounds):
            for size, (layers, heads) in SIZES.items():
                steps = effort.steps[layers, heads]
                for normaliser, theirs in NORMALISERS.items():
                    own = {"layers": layers, "heads": heads, "normaliser": normaliser}
                    asked = {
                        "alone": (ours, "run", {**own, "seeds": 1, "steps": steps}),
                        FAIR: (torch, "train", {**own, "normaliser": theirs, "data": "at once", "steps": steps // 2}),
                    }
                    if size == "1 x 1":
                        asked[REFERENCE] = (
                            torch,
                            "train",
                            {**own, "normaliser": theirs, "data": "one by one", "steps": steps // 6},
                        )
                        asked[f"{SEEDS} runs"] = (ours, "run", {**own, "seeds": effort.seeds, "steps": steps // 2})
                        asked[f"{SEEDS} runs, shared data"] = (
                            *asked[f"{SEEDS} runs"][:2],
                            asked[f"{SEEDS} runs"][2] | {"shared_data": True},
                        )
                    for way, (worker, job, values) in asked.items():
                        taken = worker.ask(job, **values)["milliseconds"]
                        times.setdefault((size, normaliser, way), []).append(taken)
                        say(f"round {number + 1} of {effort.rounds}: {size}, {normaliser}, {way}: {taken:.3g} ms a step")
        ours.close()
        torch.close()
    return about, times


def agreement(ours: Worker, torch: Worker, folder: Path, layers: int, heads: int, normaliser: str) -> float:
    """The largest relative difference of loss and gradient norm. Errors: SystemExit for one beyond TOLERANCE."""
    file = str(folder / "example.npz")
    ours.ask("example", layers=layers, heads=heads, normaliser=normaliser, save=file)
    theirs = torch.ask("loss", file=file, heads=heads, normaliser=NORMALISERS[normaliser])
    with np.load(file) as arrays:
        differences = [abs(theirs[name] / float(arrays[name]) - 1) for name in ("loss", "gradient")]
    if not max(differences) < TOLERANCE:
        raise SystemExit(
            f"{layers} x {heads}, {normaliser}: loss or gradient differs by {max(differences):.1e}, so no time counts"
        )
    return max(differences)


def numbers(times: Mapping[tuple[str, str, str], Sequence[float]]) -> list[Number]:
    """How many times as fast sinkjax is alone, by size and peer, and whether the goals are met."""
    peers = [
        as_number(f"{size}, {normaliser}, {way}", [median(taken) / median(times[size, normaliser, "alone"])], ".2f")
        for (size, normaliser, way), taken in times.items()
        if way in (FAIR, REFERENCE)
    ]
    published = [
        as_number(f"{way}, {PUBLISHED:g} ms a step", [PUBLISHED / median(times["1 x 1", "softmax", way])], ".1f", (goal, None))
        for way, goal in GOALS.items()
    ]
    return [*peers, *published]


def section(about: Mapping[str, Any], times: Mapping[tuple[str, str, str], Sequence[float]]) -> str:
    """The section, in Markdown."""
    effort: Effort = about["effort"]
    rows = []
    for (size, normaliser, way), taken in times.items():
        ratio = median(taken) / median(times[size, normaliser, "alone"])
        name = f"sinkjax, {way}" if way in ("alone", f"{SEEDS} runs", f"{SEEDS} runs, shared data") else way
        rows.append([f"{size}, {normaliser}", name, span(taken), f"{ratio:.2f}"])
    mflop = 3 * (4 * 2 * B * T * N * N + 2 * 2 * B * T * T * N) / 1e6
    floor = mflop / about["products"]
    parts = about["parts"]
    return filled(
        "trigger",
        load=f"{about['load']:.2f}",
        devices=f"{about['devices']} x {about['device']}",
        versions=", ".join(f"{name} {number}" for name, number in about["versions"].items()),
        rounds=effort.rounds,
        table=markdown(["layers x heads, normaliser", "way", "ms a step of one run", "x slower than sinkjax alone"], rows),
        published=f"{PUBLISHED:g}",
        runs=SEEDS,
        seeds=effort.seeds,
        goals=table_of(numbers(times)),
        difference=f"{about['difference']:.1e}",
        mflop=f"{mflop:.1f}",
        floor=f"{floor:.3f}",
        products=f"{about['products']:.0f}",
        data=f"{parts['data']:.3f}",
        gradient=f"{parts['gradient']:.3f}",
    )


if __name__ == "__main__":
    main()
