"""Measure forwards of long prompts on a GPU or TPU, and the rate of a product: docs/results/benchmarks-full.md.

    python scripts/benchmarks/bench_accelerator.py       four minutes on one accelerator
    python scripts/benchmarks/bench_accelerator.py --quick     a smoke run of small cases on any device; prints and writes nothing

Weights are random. Sweeps, studies and trainings are measured by bench_gpu.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
from bench_context import causal_flops
from bench_peers import command, trigger_sinkjax
from bench_peers.command import filled, say, table_of
from measured import Goal, Number, as_number

import sinkjax

PROBE = sinkjax.Probe(attention_received=True, resid_max=True, resid_norm=True, resid_argmax=True)
SHORT, LONG = 50, 40  # goals of a forward: percent of the rate that products reach, up to 2k positions and beyond


@dataclass(frozen=True)
class Case:
    """What is run. tokens: of one call of the forward, in as many prompts as that makes. product: the side of a square matrix."""

    model: str
    dtype: str
    implementations: tuple[str, ...]
    lengths: tuple[int, ...]
    tokens: int
    product: int
    rounds: int
    seeds: int
    steps: int


FULL = Case(
    model="untrained:llama-3.2-3b",
    dtype="bfloat16",
    implementations=("sinkjax", "fused", "pallas"),
    lengths=(64, 512, 2048, 8192, 32_768),
    tokens=32_768,
    product=8192,
    rounds=3,
    seeds=64,
    steps=600,
)
QUICK = Case(
    model="mini-softmax",
    dtype="float32",
    implementations=("sinkjax", "pallas"),
    lengths=(16, 64),
    tokens=64,
    product=256,
    rounds=1,
    seeds=2,
    steps=200,
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write or print the section."""
    options = command.parser(__doc__, "bench_accelerator", "small cases on any device").parse_args(arguments)
    if not options.quick and jax.default_backend() == "cpu":
        raise SystemExit("no accelerator here; --quick runs small cases on any device")
    case = QUICK if options.quick else FULL
    numbers = [*measure(case)]
    device = jax.devices()[0].device_kind
    about = {"model": case.model.removeprefix("untrained:"), "dtype": case.dtype, "tokens": f"{case.tokens:,}"}
    text = filled("accelerator", **about, where=f"on {device}, jax {jax.__version__}", table=table_of(numbers))
    command.publish(text, options, numbers, device)


def measure(case: Case) -> Iterator[Number]:
    """The numbers of products, of the forward and of the trigger task."""
    rate = {dtype: product_rate(case, dtype) for dtype in dict.fromkeys((case.dtype, "float32", "bfloat16"))}
    for dtype, value in rate.items():
        yield as_number(f"product of {case.product} x {case.product}, {dtype} (TFLOP/s)", [value / 1e12])
    model = sinkjax.load(case.model, dtype=case.dtype)
    for length in case.lengths:
        for how in case.implementations:
            yield from forward(case, model, length, how, rate[case.dtype])
    taken = [trigger_sinkjax.run(1, 1, "softmax", case.seeds, case.steps)["milliseconds"] for _ in range(case.rounds)]
    yield as_number(f"trigger task, {case.seeds} seeds, a step of one (ms)", taken)


def product_rate(case: Case, dtype: str) -> float:
    """FLOP/s of a product of matrices of this dtype, in full precision."""
    matrix = jnp.ones((case.product, case.product), dtype)
    product = jax.jit(lambda a: jnp.matmul(a, a, precision="highest"))
    return 2 * case.product**3 / min(milliseconds(lambda: product(matrix), 3)) * 1e3


def forward(case: Case, model: sinkjax.Model, length: int, how: str, rate: float) -> Iterator[Number]:
    """A forward of the blocks with statistics, by one implementation of attention, and its share of the products' rate."""
    tokens = prompts(model, max(1, case.tokens // length), length)
    call = partial(sinkjax.forward, model.params, tokens, model.config, probe=PROBE, logits=False, attention_impl=how)
    taken = milliseconds(lambda: call().record, case.rounds)
    flops = model.config.layers * sum(causal_flops(model.config, length)) * len(tokens)
    reached = flops / median(taken) * 1e3 / rate
    yield as_number(f"forward, {length:,} positions, {how} (ms)", taken)
    goal: Goal = (SHORT if length <= 2048 else LONG, None)
    yield as_number(f"forward, {length:,} positions, {how} (%)", [100 * reached], ".0f", goal)


def prompts(model: sinkjax.Model, count: int, length: int) -> jax.Array:
    """Random tokens: int32 [count, length]."""
    return jax.random.randint(jax.random.key(0), (count, length), 0, model.config.vocab_size)


def milliseconds(call: Callable[[], Any], rounds: int, before: int = 1) -> list[float]:
    """Of a call, an entry a round. before: calls that do not count, because they compile."""
    found = []
    for number in range(1 - before, rounds + 1):
        begun = time.perf_counter()
        jax.block_until_ready(call())
        found.append((time.perf_counter() - begun) * 1e3)
        say(f"round {number} of {rounds}: {found[-1]:.4g} ms")
    return found[before:]


if __name__ == "__main__":
    main()
