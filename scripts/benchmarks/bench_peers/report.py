"""From measurements to a section of `docs/results/benchmarks-full.md` and its numbers: pure functions, no measuring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from measured import Number, as_number

from bench_peers.command import filled, span, table_of
from sinkjax.report.markdown import table as markdown

OURS = "sinkjax"
# Sides agree when |difference| <= TOLERANCE |value| + ROUNDING |largest value|. The second part is eight float32 roundings of the
# largest value: a weight of 1e-4 beside one of 1 differs by more than 1e-3 of itself on some machines (seen: 1.1e-3).
TOLERANCE = 1e-3
ROUNDING = 2.0**-20
# Beyond it there may be one entry in 100,000, up to ten times as far off: a position whose activation is half grown amplifies
# rounding (seen: 8 of 8.3 million; float64 lies between the libraries, 4e-3 and 1.4e-3 away).
FEW, FAR = 1e-5, 1e-2
TASKS = {"forward": "one forward", "sweep": "the sweep"}
GOALS = {("forward", "transformers"): 2.0, ("sweep", "transformers"): 3.5, ("sweep", "TransformerLens"): 4.5}  # times as fast


@dataclass(frozen=True)
class Measured:
    """All that one run of `bench_sweep.py` measured.

    model: its name. prompts, length, edits: sizes. text: where the prompts come from. date, cpu, cores, load: the machine, and
    its load average before the start. versions: side -> package -> version. seconds: task -> side -> one entry a round; the
    entries of one round stand at one place. matmul: library -> GFLOP/s, one entry a round. block_flops: of one block on all
    prompts. passes: task -> side -> blocks computed. differences: side -> statistic -> the largest difference from sinkjax, over
    all runs.
    """

    model: str
    prompts: int
    length: int
    edits: int
    text: str
    date: str
    cpu: str
    cores: int
    load: float
    versions: Mapping[str, Mapping[str, str]]
    seconds: Mapping[str, Mapping[str, Sequence[float]]]
    matmul: Mapping[str, Sequence[float]]
    block_flops: float
    passes: Mapping[str, Mapping[str, int]]
    differences: Mapping[str, Mapping[str, float]]


def section(m: Measured) -> str:
    """The whole section, in Markdown."""
    versions = "; ".join(f"{side}: " + ", ".join(f"{name} {v}" for name, v in m.versions[side].items()) for side in m.versions)
    names = list(next(iter(m.differences.values())))
    return filled(
        "sweep",
        **{name: getattr(m, name) for name in ("model", "prompts", "length", "text", "edits", "date", "cpu", "cores")},
        **{f"rounds_{task}": len(m.seconds[task][OURS]) for task in TASKS},
        load=f"{m.load:.2f}",
        versions=versions,
        timings=timings(m),
        goals=table_of(speeds(m)),
        rounding=f"{ROUNDING / TOLERANCE:.1e}",
        agreement=markdown(
            ["", *names], [[side, *(f"{each[name]:.1e}" for name in names)] for side, each in m.differences.items()]
        ),
        block=f"{m.block_flops / 1e9:.2f}",
        rates=rates(m),
        products="; ".join(f"{library} {span(values)}" for library, values in m.matmul.items()),
    )


def timings(m: Measured) -> str:
    """Seconds by library, and how many times as long as sinkjax each takes."""
    header = ["", *(f"{TASKS[task]}, {unit}" for task in TASKS for unit in ("s", "x sinkjax"))]
    rows = []
    for side in m.versions:
        row = [side]
        for task in TASKS:
            row += [span(m.seconds[task][side]), "" if side == OURS else span(ratios(m, task, side))]
        rows.append(row)
    return markdown(header, rows)


def speeds(m: Measured) -> list[Number]:
    """How many times as fast sinkjax is, by peer; the bound is what no implementation of the same products could exceed here."""
    found = []
    for (task, side), goal in GOALS.items():
        if side in m.versions:
            products = m.passes[task][OURS] * m.block_flops / (median(m.matmul["XLA"]) * 1e9)
            bound = f"{median(m.seconds[task][side]) / products:.2f}"
            found.append(as_number(f"{TASKS[task]}, {side}", ratios(m, task, side), ".2f", (goal, None), bound))
    return found


def numbers(m: Measured) -> list[Number]:
    """The numbers that other pages take."""
    products = [as_number(f"product, {library} (GFLOP/s)", values, ".0f") for library, values in m.matmul.items()]
    blocks = [as_number(f"{TASKS['sweep']}, {side} (blocks)", [count], ".0f") for side, count in m.passes["sweep"].items()]
    return [*speeds(m), *products, *blocks]


def rates(m: Measured) -> str:
    """Achieved GFLOP/s, counting the matrix products of the blocks that are computed."""
    rows = []
    for side in m.versions:
        row = [side]
        for task in TASKS:
            flops = m.passes[task][side] * m.block_flops
            row += [str(m.passes[task][side]), f"{flops / median(m.seconds[task][side]) / 1e9:.0f}"]
        rows.append(row)
    return markdown(["", *(f"{TASKS[task]}, {unit}" for task in TASKS for unit in ("blocks", "GFLOP/s"))], rows)


def ratios(m: Measured, task: str, side: str) -> list[float]:
    """How many times as long as sinkjax a side took, round by round."""
    return [theirs / ours for theirs, ours in zip(m.seconds[task][side], m.seconds[task][OURS], strict=True)]
