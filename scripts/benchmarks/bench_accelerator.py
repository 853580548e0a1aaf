"""Measure forwards of long prompts on a GPU or TPU, and the rate of a product: docs/results/benchmarks-full.md.

    python scripts/benchmarks/bench_accelerator.py       four minutes on one accelerator; without one, a table that says so
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
from bench_peers.command import filled, say, span
from measured import Goal, Number, as_number

import sinkjax
from sinkjax.report.markdown import table as markdown

PROBE = sinkjax.Probe(attention_received=True, resid_max=True, resid_norm=True, resid_argmax=True)
SHORT, LONG = 0.50, 0.40  # goals of a forward: the share of the rate that products reach, up to 2k positions and beyond


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

NOT_MEASURED = "not measured"
HEAD = ["what", "ms", "reached", "goal"]


@dataclass(frozen=True)
class Row:
    """A row of a table. taken: milliseconds of each round, or why there are none. reached: in `unit`, at least `goal`."""

    name: str
    taken: Sequence[float] | str = ""
    reached: float | None = None
    unit: str = "%"
    goal: float | None = None

    def cells(self) -> list[str]:
        """The row in Markdown."""
        taken = self.taken if isinstance(self.taken, str) else span(self.taken)
        goal = "" if self.goal is None else UNITS[self.unit].format(self.goal)
        if self.reached is None:
            return [self.name, taken, "", goal]
        missed = ", missed" * (self.goal is not None and self.reached < self.goal)
        return [self.name, taken, UNITS[self.unit].format(self.reached), goal + missed]

    def numbers(self) -> Iterator[Number]:
        """The numbers that other pages take."""
        if not isinstance(self.taken, str):
            yield as_number(f"{self.name} (ms)", self.taken)
        if self.reached is not None:
            shares = 100 if self.unit == "%" else 1
            goal: Goal = (None if self.goal is None else shares * self.goal, None)
            yield as_number(f"{self.name} ({self.unit})", [shares * self.reached], ".0f" if self.unit == "%" else ".3g", goal)


UNITS = {"%": "{:.0%}", "TFLOP/s": "{:.3g} TFLOP/s"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write or print the section."""
    options = command.parser(__doc__, "bench_accelerator", "small cases on any device").parse_args(arguments)
    case = QUICK if options.quick else FULL
    there = options.quick or jax.default_backend() != "cpu"
    rows = list((measure if there else not_measured)(case))
    numbers = [one for row in rows for one in row.numbers()]
    command.publish(section(case, rows, there), options, numbers, jax.devices()[0].device_kind)


def not_measured(case: Case) -> Iterator[Row]:
    """The rows of a machine without an accelerator."""
    for length in case.lengths:
        for how in case.implementations:
            yield Row(f"forward, {length:,} positions, {how}", NOT_MEASURED, goal=goal_of(length))
    yield Row(f"trigger task, {case.seeds} seeds, a step of one", NOT_MEASURED)


def measure(case: Case) -> Iterator[Row]:
    """The rows of the forward and the trigger task."""
    rate = {dtype: product_rate(case, dtype) for dtype in dict.fromkeys((case.dtype, "float32", "bfloat16"))}
    for dtype, value in rate.items():
        yield Row(f"product of {case.product} x {case.product}, {dtype}", reached=value / 1e12, unit="TFLOP/s")
    model = sinkjax.load(case.model, dtype=case.dtype)
    for length in case.lengths:
        for how in case.implementations:
            yield forward(case, model, length, how, rate[case.dtype])
    taken = [trigger_sinkjax.run(1, 1, "softmax", case.seeds, case.steps)["milliseconds"] for _ in range(case.rounds)]
    yield Row(f"trigger task, {case.seeds} seeds, a step of one", taken)


def product_rate(case: Case, dtype: str) -> float:
    """FLOP/s of a product of matrices of this dtype, in full precision."""
    matrix = jnp.ones((case.product, case.product), dtype)
    product = jax.jit(lambda a: jnp.matmul(a, a, precision="highest"))
    return 2 * case.product**3 / min(milliseconds(lambda: product(matrix), 3)) * 1e3


def forward(case: Case, model: sinkjax.Model, length: int, how: str, rate: float) -> Row:
    """A forward of the blocks with statistics, by one implementation of attention, beside its causal products."""
    tokens = prompts(model, max(1, case.tokens // length), length)
    call = partial(sinkjax.forward, model.params, tokens, model.config, probe=PROBE, logits=False, attention_impl=how)
    taken = milliseconds(lambda: call().record, case.rounds)
    flops = model.config.layers * sum(causal_flops(model.config, length)) * len(tokens)
    reached = flops / median(taken) * 1e3 / rate
    return Row(f"forward, {length:,} positions, {how}", taken, reached, goal=goal_of(length))


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


def goal_of(length: int) -> float:
    """The share of the rate of products that a forward of so many positions is to reach."""
    return SHORT if length <= 2048 else LONG


def section(case: Case, rows: Sequence[Row], there: bool) -> str:
    """The section, in Markdown."""
    where = f"on {jax.devices()[0].device_kind}, jax {jax.__version__}" if there else "on a machine without an accelerator"
    about = {"model": case.model.removeprefix("untrained:"), "dtype": case.dtype, "tokens": f"{case.tokens:,}", "where": where}
    return filled("accelerator", **about, table=markdown(HEAD, [row.cells() for row in rows]))


if __name__ == "__main__":
    main()
