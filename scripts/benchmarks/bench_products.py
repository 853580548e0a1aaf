"""Measure how much of the time of a card, a scan, edges and a training step is matrix products, by JAX's profiler.

    python scripts/benchmarks/run.py products             on SmolLM2 and a training of 62 million parameters, about seven minutes
    python scripts/benchmarks/run.py products --quick     on mini-softmax; prints the section

Each is called twice: the first call compiles, the second is profiled. XLA's CPU compiler puts products into operations of their
own, with additions or scalings fused into them; their time is compared with the whole call's, and the largest others are named.
"""

from __future__ import annotations

import gzip
import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from bench_peers import command
from bench_peers.pretrain_sinkjax import begun
from bench_train import SHAPES
from measured import as_number

import sinkjax
from sinkjax.report.markdown import table as markdown
from sinkjax.train.state import optimiser_of

GOAL = 60.0  # %
NAMED = 4  # other operations that the section names
PRODUCTS = ("ynn_fusion", "dot", "onednn", "custom-call")  # beginnings of the names of XLA's operations


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write or print the section."""
    options = command.parser(__doc__, "bench_products", "mini-softmax").parse_args(arguments)
    load, name = os.getloadavg()[0], "mini-softmax" if options.quick else "smollm2-135m"
    model = sinkjax.load(name)
    tokens = np.random.default_rng(0).integers(0, model.config.vocab_size or 0, (4, 48))
    count = min(model.config.vocab_size or 0, 8192)
    calls: dict[str, Callable[[], Any]] = {
        "card": lambda: sinkjax.card(model),
        f"scan of {count:,} tokens": lambda: sinkjax.scan(model, np.arange(count), text=tokens[:2]),
        "edges": lambda: sinkjax.attribute_edges(model, tokens, to_first, exact=8, progress=False),
    }
    calls["training step"] = training_step("mini" if options.quick else "60m")
    found, rows = [], []
    for what, call in calls.items():
        percent, others = shares(call)
        found.append(as_number(f"products of a call, {what} (%)", [percent], ".0f", (GOAL, None)))
        rows.append((what, f"{percent:.0f}%", found[-1].met, ", ".join(f"{name} {of:.0f}%" for name, of in others[:NAMED])))
    table = markdown(("", "products", "", "largest other operations of XLA"), rows)
    text = command.filled("products", model=name, load=f"{load:.2f}", jax=jax.__version__, goal=f"{GOAL:.0f}", table=table)
    command.publish(text, options, found, near="bench_scan")


def to_first(record: sinkjax.Record) -> jax.Array:
    """The attention that each prompt's first token receives: the metric of the edges."""
    return jnp.asarray(record["attention_received"][..., 0].mean((1, 2)))


def training_step(size: str) -> Callable[[], Any]:
    """Return a call that makes one step of a training of `bench_train.py`: gradient, optimiser, update."""
    task, values, batch = begun(SHAPES[size])
    optimiser = optimiser_of(task.config, 4e-3)

    @jax.jit
    def step(values: Any, state: Any) -> Any:
        slope = jax.grad(lambda values: task.loss(values, batch, 0)[0])(values)
        changes, state = optimiser.update(slope, state, values)
        return optax.apply_updates(values, changes), state

    state = optimiser.init(values)
    return lambda: jax.block_until_ready(step(values, state))


def shares(call: Callable[[], Any]) -> tuple[float, list[tuple[str, float]]]:
    """Return the percentage of a call's time that is in operations of products, and in each other kind, the largest first."""
    call()
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        with jax.profiler.trace(folder):
            call()
            taken = time.perf_counter() - start
        (file,) = Path(folder).glob("plugins/profile/*/*.trace.json.gz")
        events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    operations = [event for event in events if "hlo_op" in event.get("args", {})]
    times = Counter[str]()
    for event in operations:
        name = event["args"]["hlo_op"].rstrip(".0123456789")
        times["" if name.startswith(PRODUCTS) else name] += 100 * event["dur"] / 1e6 / taken
    return times.pop("", 0.0), times.most_common()


if __name__ == "__main__":
    main()
