"""Measure pretraining of language models beside a plain PyTorch loop of the same model: docs/results/benchmarks-full.md.

    python scripts/benchmarks/bench_train.py             about fifteen minutes on two cores that have nothing else to do
    python scripts/benchmarks/bench_train.py --quick     a smoke run of the smallest; prints the section and writes nothing

It needs the extra `test`, and a C++ compiler for the row of torch.compile. Both sides must give the same loss and gradient before
any time counts.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import truediv
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from bench_peers import command
from bench_peers.command import filled, say, span, table_of
from bench_peers.worker import CORES, Worker
from measured import Number, as_number

from sinkjax.papers.pretrain._task import SIZES
from sinkjax.report.markdown import table as markdown

OURS, SEEDS, EAGER, COMPILED = "sinkjax", "sinkjax, a seed for each core", "PyTorch", "PyTorch, compiled"
GOAL = 1.5  # times as fast as the faster PyTorch, for "mini"
GOAL_SHARE = 0.75  # of the rate of products, for loss and gradient of "60m"
TOLERANCE = 1e-4
EVALUATIONS = 1

ON_TWO_CORES = {"mini": {"eval_batch": 64}, "60m": {"batch": 4, "eval_batch": 4}}  # what is otherwise than in a study
SHAPES: dict[str, dict[str, int]] = {
    size: {name: SIZES[size].fields[name] for name in ("layers", "width", "heads", "mlp_width", "batch")}
    | {"context": 256, "vocabulary": 2048, **otherwise}
    for size, otherwise in ON_TWO_CORES.items()
}


@dataclass(frozen=True)
class Effort:
    """How much is measured. rounds: of everything. steps: size -> those of one training in a round."""

    rounds: int
    steps: Mapping[str, int]


FULL = Effort(3, {"mini": 100, "60m": 6})
QUICK = Effort(1, {"mini": 2})


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write or print the section."""
    options = command.parser(__doc__, "bench_train", "the smallest size, a few steps, 1 round").parse_args(arguments)
    found = measure(QUICK if options.quick else FULL)
    command.publish(section(*found), options, numbers(*found))


def measure(effort: Effort) -> tuple[dict[str, Any], dict[tuple[str, str], list[float]]]:
    """About the machine, the sizes and the agreement, and milliseconds of a step by (size, way), a round each."""
    about: dict[str, Any] = {"load": os.getloadavg()[0], "effort": effort, "sizes": {}}
    times: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ours, torch = Worker("pretrain_sinkjax", folder), Worker("pretrain_torch", folder)
        about |= ours.ask("versions")
        about["versions"] = about["versions"] | torch.ask("versions")["versions"]
        about["products"] = ours.ask("products")["gflops"]
        for size in effort.steps:
            difference = agreement(ours, torch, folder, size)
            parts = ours.ask("parts", shape=SHAPES[size])
            about["sizes"][size] = {"difference": difference, "parts": parts, **ours.ask("about", shape=SHAPES[size])}
        for number in range(effort.rounds):
            for size, steps in effort.steps.items():
                shape = SHAPES[size]
                theirs = {"folder": str(folder / size), "batch": shape["batch"], "length": shape["context"], "steps": steps}
                asked = {
                    OURS: (ours, "run", {"shape": shape, "steps": steps, "evaluations": EVALUATIONS}),
                    EAGER: (torch, "train", {**theirs, "compiled": False}),
                }
                if size == "mini":
                    asked[SEEDS] = (ours, "run", {**asked[OURS][2], "seeds": CORES})
                if shutil.which("g++"):
                    asked[COMPILED] = (torch, "train", {**theirs, "compiled": True})
                for way, (worker, job, values) in asked.items():
                    taken = worker.ask(job, **values)["milliseconds"]
                    times.setdefault((size, way), []).append(taken)
                    say(f"round {number + 1} of {effort.rounds}: {size}, {way}: {taken:.4g} ms a step")
        for worker in (ours, torch):
            worker.close()
    return about, times


def agreement(ours: Worker, torch: Worker, folder: Path, size: str) -> float:
    """The largest relative difference of loss and gradient norm. Errors: SystemExit for one beyond TOLERANCE."""
    file, model = str(folder / f"{size}.npz"), str(folder / size)
    ours.ask("example", shape=SHAPES[size], folder=model, save=file)
    theirs = torch.ask("loss", folder=model, file=file)
    with np.load(file) as arrays:
        differences = [abs(theirs[name] / float(arrays[name]) - 1) for name in ("loss", "gradient")]
    if not max(differences) < TOLERANCE:
        raise SystemExit(f"{size}: loss or gradient differs by {max(differences):.1e}, so no time counts")
    return max(differences)


def numbers(about: Mapping[str, Any], times: Mapping[tuple[str, str], Sequence[float]]) -> list[Number]:
    """The numbers that other pages take."""
    return [*speeds(about, times), as_number("product (GFLOP/s)", [about["products"]], ".0f")]


def speeds(about: Mapping[str, Any], times: Mapping[tuple[str, str], Sequence[float]]) -> list[Number]:
    """How many times as fast as the faster PyTorch each size is, with one training on all cores and with one on each."""
    found = []
    for (size, way), taken in times.items():
        if way in (OURS, SEEDS):
            peers = [times[size, one] for one in (EAGER, COMPILED) if (size, one) in times]
            best = [min(each) for each in zip(*peers, strict=True)]
            goal = (GOAL if (size, way) == ("mini", OURS) else None, None)
            bound = f"{median(best) / least_milliseconds(size, about):.2f}"
            found.append(as_number(f"{size}, {way}", [*map(truediv, best, taken)], ".2f", goal, bound))
    return found


def least_milliseconds(size: str, about: Mapping[str, Any]) -> float:
    """The time of a step's FLOPs at the rate of large products."""
    shape = SHAPES[size]
    return shape["batch"] * shape["context"] * float(about["sizes"][size]["flops"]) / float(about["products"]) / 1e6


def section(about: Mapping[str, Any], times: Mapping[tuple[str, str], Sequence[float]]) -> str:
    """The section, in Markdown."""
    effort: Effort = about["effort"]
    rows = []
    for (size, way), taken in times.items():
        shape, found = SHAPES[size], about["sizes"][size]
        tokens = shape["batch"] * shape["context"]
        rate = tokens / median(taken) * 1e3
        ratios = [a / b for a, b in zip(taken, times[size, OURS], strict=True)]
        share = rate * found["flops"] / 1e9 / about["products"]
        rows.append(
            [f"{size}, {way}", span(taken), f"{rate:,.0f}", f"{share:.0%}", "" if way == OURS else f"{median(ratios):.2f}"]
        )
    header = ["", "ms a step", "tokens a second", "FLOP utilisation", "x slower than sinkjax"]
    shapes = "; ".join(
        f"{size}: {shape['layers']} layers, d {shape['width']}, {shape['heads']} heads, FFN {shape['mlp_width']}, "
        f"{about['sizes'][size]['parameters']:,} parameters, {shape['batch']} x {shape['context']} tokens a step, vocabulary "
        f"{shape['vocabulary']}"
        for size, shape in SHAPES.items()
        if size in about["sizes"]
    )
    trained = "; ".join(f"{size}: {steps} steps, {SHAPES[size]['eval_batch']} blocks" for size, steps in effort.steps.items())
    return filled(
        "train",
        shapes=shapes,
        trained=trained,
        load=f"{about['load']:.2f}",
        versions=", ".join(f"{name} {number}" for name, number in about["versions"].items()),
        rounds=effort.rounds,
        compiled="" if any(way == COMPILED for _, way in times) else " (no C++ compiler: not compiled)",
        table=markdown(header, rows),
        goals=table_of(speeds(about, times)),
        products=f"{about['products']:.0f}",
        difference=f"{max(found['difference'] for found in about['sizes'].values()):.1e}",
        parts=parts_table(about["sizes"]),
    )


def parts_table(sizes: Mapping[str, Any]) -> str:
    """The parts of a step, in Markdown."""
    rows = []
    for size, found in sizes.items():
        flops = SHAPES[size]["batch"] * SHAPES[size]["context"] * found["flops"]
        parts = found["parts"]
        loss, gradient = (flops / of / parts[name] / parts["gflops"] / 1e6 for name, of in (("loss", 3), ("gradient", 1)))
        goal = ("met" if gradient >= GOAL_SHARE else "missed") if size == "60m" else ""
        milliseconds = [f"{parts[name]:.1f}" for name in ("loss", "gradient", "optimiser")]
        rows.append([f"{size}, sinkjax", *milliseconds, f"{loss:.0%}", f"{gradient:.0%}", goal])
    head = ["", "loss", "loss and gradient", "optimiser", "share, loss", "share, loss and gradient", f"goal: {GOAL_SHARE:.0%}"]
    return markdown(head, rows)


if __name__ == "__main__":
    main()
