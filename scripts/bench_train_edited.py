"""Measure what edits cost a training step, and what `evaluate` costs beside the plain forward, each in turn in one process.

    python scripts/bench_train_edited.py             25 minutes of a core
    python scripts/bench_train_edited.py --quick     1 round on small models; prints the section and writes nothing

An edit acts whether or not it is in force, so one that is not is measured too. Times are processor time of all threads, so that a
busy machine says much the same as a quiet one. It goes to docs/benchmarks.md.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Sequence
from datetime import date
from functools import partial
from statistics import median

import jax
import numpy as np
from bench_peers import command
from bench_peers.command import cpu_name, say, span
from sections import markdown

import sinkjax
from sinkjax.evaluation import TOKENS
from sinkjax.papers.pretrain._sizes import SIZES
from sinkjax.tasks import registry
from sinkjax.tasks.language_model.config import Pretrain
from sinkjax.train.run_parallel import RunParallel
from sinkjax.train.runs import arrays, table
from sinkjax.train.task import HostDataTask

GOAL, GOAL_EVALUATION = 1.15, 1.3  # times a plain step; times plain forwards of the same tokens
STEPS, ROUNDS = 20, 5
MODEL, LENGTH, EVALUATED = "smollm2-135m", 256, 102_400  # tokens of a piece, and of all: whole batches of `evaluate`
EDITS = {
    "plain": {},
    "key 0 hidden": {"edits": "edits: [{mask_key: {key: 0}}]"},
    "key 0 hidden, later": {"edits": "edits: [{mask_key: {key: 0}}]", "from_step": 10**6},
    "first token's MLP dropped": {"edits": "edits: [{drop_mlp: {position: 0}}]"},
}
FORWARD, EVALUATE = "plain forwards with the loss", "evaluate, everything off"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write or print the section."""
    options = command.parser(__doc__, "bench_train_edited", "small models, 1 round").parse_args(arguments)
    load, rounds = os.getloadavg()[0], 1 if options.quick else ROUNDS
    steps = in_turn(training_calls(options.quick), rounds, 1000 / STEPS)
    pieces = 16 if options.quick else EVALUATED // LENGTH
    evaluations = in_turn(evaluation_calls("mini-sink" if options.quick else MODEL, pieces), 1, 1)
    command.publish(section(steps, evaluations, pieces * LENGTH, load), options)


def in_turn(calls: dict[str, Callable[[], object]], rounds: int, scale: float) -> dict[str, list[float]]:
    """Processor seconds of each call, times a scale."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        for name, call in calls.items():
            begun = time.process_time()
            call()
            taken[name].append((time.process_time() - begun) * scale)
    return taken


def section(steps: dict[str, list[float]], evaluations: dict[str, list[float]], tokens: int, load: float) -> str:
    """The text of the section."""

    def lines(taken: dict[str, list[float]], first: str) -> list[list[str]]:
        base = median(taken[first])
        return [
            [name, span(each) if len(each) > 1 else f"{each[0]:.3g}", "" if name == first else f"{median(each) / base:.3f}"]
            for name, each in taken.items()
        ]

    edited = max(median(each) / median(steps["plain"]) for each in steps.values())
    evaluated = median(evaluations[EVALUATE]) / median(evaluations[FORWARD])
    return "\n\n".join(
        (
            "## Edits while training, and evaluation",
            f"Milliseconds a step of the model of `pretrain/baseline`, {STEPS} steps at a time; seconds of an evaluation of"
            f" {tokens:,} tokens of {MODEL} in pieces of {LENGTH}. Processor time of all threads, medians (smallest to largest),"
            f" compilation aside. Measured on {date.today()} on {cpu_name()}, jax {jax.__version__}, load average {load:.2f}"
            " before the start. `python scripts/bench_train_edited.py` writes this section.",
            markdown(["step", "ms", "x plain"], lines(steps, "plain")),
            f"Goal: at most {GOAL} times a plain step, {'met' if edited <= GOAL else 'not met'}.",
            markdown(["evaluation", "s", "x plain"], lines(evaluations, FORWARD)),
            f"Goal: at most {GOAL_EVALUATION} times plain forwards, {'met' if evaluated <= GOAL_EVALUATION else 'not met'}.",
        )
    )


def evaluation_calls(name: str, pieces: int) -> dict[str, Callable[[], object]]:
    """The loss of random tokens, by `evaluate` and by forwards of as many pieces at a time; compiled for a batch of these."""
    model = sinkjax.load(name)
    ids = np.random.default_rng(0).integers(0, model.config.vocab_size, (pieces, LENGTH))
    rows, probe = TOKENS // LENGTH, sinkjax.Probe(nll=True)

    def forwards(ids: np.ndarray) -> list[np.ndarray]:
        groups = (ids[begin : begin + rows] for begin in range(0, len(ids), rows))
        return [np.asarray(sinkjax.forward(model, group, probe=probe, logits=False).record["nll"]) for group in groups]

    ways: dict[str, Callable[[np.ndarray], object]] = {FORWARD: forwards, EVALUATE: partial(sinkjax.evaluate, model)}
    for way in ways.values():
        way(ids[:rows])
    return {name: partial(way, ids) for name, way in ways.items()}


def training_calls(small: bool) -> dict[str, Callable[[], object]]:
    """A function for each kind of step that makes the next `STEPS`, compiled."""
    names = ("layers", "width", "heads", "mlp_width", "batch")
    sizes = {name: SIZES["340k" if small else "mini"].fields[name] for name in names}
    base = Pretrain(**sizes, steps=10**7, eval_every=STEPS, eval_batch=1, limit=200_000, vocabulary=2048)
    return {name: prepared(dataclasses.replace(base, **fields)) for name, fields in EDITS.items()}


def prepared(config: Pretrain) -> Callable[[], None]:
    """A function that makes the next `STEPS` steps, compiled."""
    task = registry.task(config)
    assert isinstance(task, HostDataTask)
    devices, source = RunParallel(task, config, 1), task.open(lambda line: None)
    runs = jax.tree.map(np.asarray, arrays(table(config, task), task))
    batches = [source.batch(0, step) for step in range(STEPS)]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves)[None], *batches)
    held_out, state = source.held_out(), devices.begin()
    done = 0

    def call() -> None:
        nonlocal state, done
        done += STEPS
        state, _ = devices.advance(state, runs, [0], done, stacked, held_out)
        jax.block_until_ready(state)

    call()
    return call


if __name__ == "__main__":
    main()
