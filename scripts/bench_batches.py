"""Measure what making a batch of the trigger task costs with each random generator, within a training step: docs/benchmarks.md.

    python scripts/bench_batches.py             about two minutes on two cores
    python scripts/bench_batches.py --quick     a smoke run; prints the section and writes nothing

Times are processor time of all threads, so that a busy machine says much the same as a quiet one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
from bench_peers import command
from bench_peers.command import cpu_name, say, span
from sections import markdown

from sinkjax.tasks import registry
from sinkjax.tasks.trigger.config import TriggerTraining
from sinkjax.train import step
from sinkjax.train.step import update
from sinkjax.train.trained import begin_all

SIZES = {"1 x 1": (1, 1), "2 x 2": (2, 2)}  # layers x heads
NONE = "one batch, drawn once"
GENERATORS = {
    "hash (train/step.py)": step.HASH,
    "threefry": "threefry2x32",
    "rbg": "rbg",
    "unsafe_rbg": "unsafe_rbg",
}
OURS = next(iter(GENERATORS))
WORTH = 0.2  # share of a step that a generator of our own must save to be worth its lines

Times = Mapping[str, Mapping[str, Sequence[float]]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write or print the section."""
    options = command.parser(__doc__, "bench_batches", "1 round of 20 steps of 1 x 1").parse_args(arguments)
    load = os.getloadavg()[0]
    times = measure({"1 x 1": (1, 1)}, 1, 20) if options.quick else measure(SIZES, 5, 200)
    command.publish(section(times, load), options)


def measure(sizes: Mapping[str, tuple[int, int]], rounds: int, steps: int) -> Times:
    """Size -> generator -> milliseconds of processor time of one step, one entry a round; in a round all take turns."""
    times: dict[str, dict[str, list[float]]] = {}
    for size, (layers, heads) in sizes.items():
        say(f"{size}: compiling")
        ways = {name: training(layers, heads, GENERATORS.get(name), steps) for name in (NONE, *GENERATORS)}
        times[size] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, train in ways.items():
                begun = time.process_time()
                jax.block_until_ready(train())
                times[size][name].append((time.process_time() - begun) * 1e3 / steps)
        say(f"{size}: " + ", ".join(f"{name} {median(taken):.3g} ms" for name, taken in times[size].items()))
    return times


def training(layers: int, heads: int, generator: Any, steps: int) -> Callable[[], Any]:
    """A compiled call of `steps` steps of the trainer; with a generator each makes its batch, without one all take the same."""
    config = TriggerTraining(layers=layers, heads=heads, normalisers=("softmax",))
    task: Any = registry.task(config)
    states, runs = begin_all(task, config)
    state, run = jax.tree.map(lambda leaf: leaf[0], (states, runs))
    key = jax.random.key(0, impl=generator or step.HASH)

    @jax.jit
    def train(state: Any, batch: Any) -> Any:
        def step(state: Any, number: jax.Array) -> tuple[Any, None]:
            made = task.batch(jax.random.fold_in(key, number)) if generator else batch
            return update(state, run, made, task, config)[0], None

        return jax.lax.scan(step, state, jnp.arange(steps))[0]

    batch = task.batch(key)
    jax.block_until_ready(train(state, batch))
    return lambda: train(state, batch)


def section(times: Times, load: float) -> str:
    """The section, in Markdown."""
    rows = []
    for size, taken in times.items():
        ours = median(taken[OURS])
        rows += [[size, name, span(found), f"{median(found) / ours - 1:+.0%}"] for name, found in taken.items()]
    saved = {size: 1 - median(taken[OURS]) / median(taken["threefry"]) for size, taken in times.items()}
    said = ", ".join(f"{share:.0%} at {size}" for size, share in saved.items())
    worth = (
        "so it is worth its lines" if max(saved.values()) >= WORTH else f"less than the {WORTH:.0%} that would be worth its lines"
    )
    return "\n\n".join(
        (
            "## Random bits for training data",
            f"A step of the trigger task (batch 128, 16 tokens of 16 numbers, softmax, Adam) on one device, its batch made by "
            f"`jax.random` with each generator; milliseconds of processor time of all threads, medians (smallest to largest). "
            f"Measured on {date.today().isoformat()} on {cpu_name()}, jax {jax.__version__}, load average {load:.2f} before the "
            "start. `python scripts/bench_batches.py` writes this section.",
            markdown(["layers x heads", "generator", "ms a step", "more than hash"], rows),
            f"Of a step with JAX's default, threefry, that of `sinkjax/train/step.py` saves {said}: {worth}. Those "
            "named rbg draw other numbers under vmap, and on other devices and versions of XLA, as JAX documents, so a run would "
            "no longer be the same alone and among others.",
        )
    )


if __name__ == "__main__":
    main()
