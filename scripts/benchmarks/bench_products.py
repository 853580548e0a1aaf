"""Measure how much of the time of a card, a scan and edges is matrix products, by JAX's profiler.

    python scripts/benchmarks/run.py products             on SmolLM2, about six minutes
    python scripts/benchmarks/run.py products --quick     on mini-softmax; prints the section

Each is called twice: the first call compiles, the second is profiled. XLA's CPU compiler puts products into operations of their
own, with additions or scalings fused into them; their time is compared with the whole call's.
"""

from __future__ import annotations

import gzip
import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from bench_peers import command
from measured import as_number

import sinkjax

GOAL = 60.0  # %
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
        "edges": lambda: sinkjax.attribute_edges(
            model, tokens, lambda record: record["attention_received"][..., 0].mean((1, 2)), exact=8, progress=False
        ),
    }
    found = [as_number(f"products of a call, {what} (%)", [share(call)], ".0f", (GOAL, None)) for what, call in calls.items()]
    text = command.filled(
        "products", model=name, load=f"{load:.2f}", jax=jax.__version__, goal=f"{GOAL:.0f}", table=command.table_of(found)
    )
    command.publish(text, options, found, near="bench_scan")


def share(call: Callable[[], Any]) -> float:
    """Return the percentage of a call's time that is in operations of products."""
    call()
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        with jax.profiler.trace(folder):
            call()
            taken = time.perf_counter() - start
        (file,) = Path(folder).glob("plugins/profile/*/*.trace.json.gz")
        events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    operations = [event for event in events if "hlo_op" in event.get("args", {})]
    products = sum(event["dur"] for event in operations if event["args"]["hlo_op"].startswith(PRODUCTS))
    return 100 * products / 1e6 / taken


if __name__ == "__main__":
    main()
