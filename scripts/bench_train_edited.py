"""Measure what edits cost a training step: plain and edited steps of one model in turn, in one process.

    python scripts/bench_train_edited.py [ROUNDS]      prints milliseconds a step of each, and the ratio

An edit acts whether or not it is in force, so one that is not is measured too.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable
from statistics import median

import jax
import numpy as np

from sinkjax.papers.pretrain._sizes import SIZES
from sinkjax.tasks import registry
from sinkjax.tasks.language_model.config import Pretrain
from sinkjax.train.run_parallel import RunParallel
from sinkjax.train.runs import arrays, table
from sinkjax.train.task import HostDataTask

GOAL = 1.15  # times a plain step
STEPS = 20
EDITS = {
    "plain": {},
    "key 0 hidden": {"edits": "edits: [{mask_key: {key: 0}}]"},
    "key 0 hidden, later": {"edits": "edits: [{mask_key: {key: 0}}]", "from_step": 10**6},
    "first token's MLP dropped": {"edits": "edits: [{drop_mlp: {position: 0}}]"},
}


def main(rounds: int = 5) -> None:
    """Measure and print."""
    names = ("layers", "width", "heads", "mlp_width", "batch")
    sizes = {name: SIZES["mini"].fields[name] for name in names}
    base = Pretrain(**sizes, steps=10**7, eval_every=STEPS, eval_batch=1, limit=200_000, vocabulary=2048)
    calls = {name: prepared(dataclasses.replace(base, **fields)) for name, fields in EDITS.items()}
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            begun = time.process_time()
            call()
            taken[name].append((time.process_time() - begun) / STEPS * 1000)
    plain = median(taken["plain"])
    for name, each in taken.items():
        print(f"{name:28} {median(each):8.1f} ms of processor time a step  {median(each) / plain:5.3f} times plain (goal {GOAL})")


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
    main(*map(int, sys.argv[1:]))
