"""Measure the processor time of `sinkjax.scan` as a multiple of that of its matrix products alone.

python scripts/benchmarks/bench_scan.py             every token of SmolLM2, two rounds: 6 minutes of processor time
python scripts/benchmarks/bench_scan.py --quick     2,048 tokens of mini-softmax, one round; prints the section

The products of all blocks, on as many rows as a call of the scan has, run in turn with the scan in one process, so that other
work on the machine slows both. Compilation is not counted.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from bench_peers import command
from measured import as_number

import sinkjax
from sinkjax.explain.scan import ROWS

GOAL = 1.3
INPUTS = ("q", "k", "v", "gate", "up")  # leaves that multiply the stream; "o" and "down" multiply the width of one of them


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write or print the section."""
    options = command.parser(__doc__, "bench_scan", "2,048 tokens of mini-softmax, one round").parse_args(arguments)
    load = os.getloadavg()[0]
    name, count, rounds = ("mini-softmax", 2048, 1) if options.quick else ("smollm2-135m", 49_152, 2)
    scan, products = measure(name, count, rounds)
    times = [one / other for one, other in zip(scan, products, strict=True)]
    text = command.filled(
        "scan",
        model=name,
        tokens=f"{count:,}",
        rounds=rounds,
        load=f"{load:.2f}",
        jax=jax.__version__,
        scan=command.span(scan),
        products=command.span(products),
        times=command.span(times),
        goal=GOAL,
    )
    command.publish(text, options, [as_number("scan, times its products", times, goal=(None, GOAL))], near="bench_overhead")


def measure(name: str, count: int, rounds: int) -> tuple[list[float], list[float]]:
    """Return the processor time of the scan and of its products, in seconds, in each round."""
    model = sinkjax.load(name)
    rng, vocabulary = np.random.default_rng(0), model.config.vocab_size or 0
    text = rng.integers(0, vocabulary, (2, min(64, model.config.context)))
    tokens = rng.integers(0, vocabulary, count)
    rows = min(ROWS, count)
    layers = {leaf: np.asarray(model.params["layers"][leaf]) for leaf in (*INPUTS, "o", "down") if leaf in model.params["layers"]}
    x = jax.numpy.asarray(rng.standard_normal((rows, model.config.width)), jax.numpy.float32)
    once = jax.jit(products)

    def plain() -> None:
        for _ in range(-(-count // rows)):
            jax.block_until_ready(once(layers, x))

    def scan() -> None:
        sinkjax.scan(model, tokens, text=text)

    sinkjax.scan(model, tokens[:rows], text=text)
    jax.block_until_ready(once(layers, x))
    times = [(processor_time(scan), processor_time(plain)) for _ in range(rounds)]
    return [one for one, _ in times], [other for _, other in times]


def products(layers: dict[str, Any], x: jax.Array) -> jax.Array:
    """Multiply rows [N, d] by every matrix of every block."""

    def step(total: jax.Array, w: dict[str, jax.Array]) -> tuple[jax.Array, None]:
        made = {leaf: x @ w[leaf].reshape(x.shape[1], -1) for leaf in INPUTS if leaf in w}
        wide = {"o": made["q"], "down": made.get("up", made["q"])}
        out = [wide[leaf] @ w[leaf].reshape(-1, x.shape[1]) for leaf in wide if leaf in w]
        return total + sum(one.sum() for one in (*made.values(), *out)), None

    return jax.lax.scan(step, jax.numpy.float32(0), layers)[0]


def processor_time(run: Callable[[], None]) -> float:
    """Return the processor time of a call, of all threads."""
    start = time.process_time()
    run()
    return time.process_time() - start


if __name__ == "__main__":
    main()
