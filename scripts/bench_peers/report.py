"""From measurements to the section of `docs/benchmarks.md`: pure functions, no measuring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

OURS = "sinkjax"
# Sides agree when |difference| <= TOLERANCE |value| + ROUNDING |largest value|. The second part is eight float32 roundings of the
# largest value: a weight of 1e-4 beside one of 1 differs by more than 1e-3 of itself on some machines (seen: 1.1e-3).
TOLERANCE = 1e-3
ROUNDING = 2.0**-20
TASKS = {"forward": "one forward", "sweep": "the sweep"}
GOALS = {("forward", "transformers"): 2.0, ("sweep", "transformers"): 3.5, ("sweep", "TransformerLens"): 4.5}  # times as fast


@dataclass(frozen=True)
class Measured:
    """All that one run of `bench_sweep.py` measured.

    model: its name. prompts, length, edits: sizes. text: where the prompts come from. date, cpu, cores, load: the machine, and
    its load average before the start. versions: side -> package -> version. seconds: task -> side -> one entry a round; the
    entries of one round stand at one place. matmul: library -> GFLOP/s, one entry a round. block_flops: of one block on all
    prompts. passes: task -> side -> blocks computed. differences: side -> statistic -> the largest difference from sinkjax, over
    all runs. first_calls: cache -> task -> seconds of a process's first call. compiled: layers -> the reply of sinkjax's
    `compile`. model_layers: those of the model.
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
    first_calls: Mapping[str, Mapping[str, float]]
    compiled: Mapping[int, Mapping[str, Any]]
    model_layers: int


def section(measured: Measured) -> str:
    """The whole section, in Markdown."""
    parts = (setting, timings, verdicts, agreement, rates, compilation, memory)
    return "\n\n".join(part(measured) for part in parts)


def setting(m: Measured) -> str:
    """What was run, on what."""
    packages = "; ".join(f"{side}: " + ", ".join(f"{name} {v}" for name, v in m.versions[side].items()) for side in m.versions)
    rounds = {task: len(m.seconds[task][OURS]) for task in TASKS}
    return (
        "## A sweep, against transformers and TransformerLens\n\n"
        f"{m.model} in float32, {m.prompts} prompts of {m.length} tokens ({m.text}), no BOS. Every side returns "
        "`attention_received`, `resid_max`, `resid_norm` and `resid_argmax` of every layer, and nothing is unembedded. "
        f"The sweep has {m.edits} edits: no query but query 0 sees key 0, in one layer each. Each library runs in a process of "
        f"its own with all cores; after a warm-up, {rounds['forward']} rounds of the forward and {rounds['sweep']} of the sweep "
        "take the libraries in turn. Times are medians (smallest to largest) in seconds; ratios are taken within a round.\n\n"
        f"Measured on {m.date} on {m.cpu}, {m.cores} cores, load average {m.load:.2f} before the start. {packages}. "
        "`python scripts/bench_sweep.py` writes this section."
    )


def timings(m: Measured) -> str:
    """Seconds by library, and how many times as long as sinkjax each takes."""
    header = ["", *(f"{TASKS[task]}, {unit}" for task in TASKS for unit in ("s", "x sinkjax"))]
    rows = []
    for side in m.versions:
        row = [side]
        for task in TASKS:
            row += [spread(m.seconds[task][side]), "" if side == OURS else spread(ratios(m, task, side))]
        rows.append(row)
    note = (
        "sinkjax writes its sweep to a store on disk and computes each block before the edited one once; the others repeat whole "
        "forwards, as their interfaces do (TransformerLens still runs the blocks before its `start_at_layer`), and keep the "
        "results in memory. TransformerLens stops behind the last block by the exception that it uses itself, as `stop_at_layer` "
        "stops only before a block."
    )
    return f"{table(header, rows)}\n\n{note}"


def verdicts(m: Measured) -> str:
    """Each goal, whether the median over rounds reaches it, and what no implementation of the same products could exceed here."""
    rows = []
    for (task, side), goal in GOALS.items():
        if side in m.versions:
            ratio = median(ratios(m, task, side))
            products = m.passes[task][OURS] * m.block_flops / (median(m.matmul["XLA"]) * 1e9)
            bound = median(m.seconds[task][side]) / products
            row = [f"{TASKS[task]}, {side}", f">= {goal:g}", f"{ratio:.2f}", "reached" if ratio >= goal else "missed"]
            rows.append([*row, f"{bound:.2f}"])
    note = (
        "The last column is the reason where a goal is missed: how many times as fast sinkjax would be if nothing but its matrix "
        "products took time, at the rate that XLA reaches here for a large one."
    )
    return f"{table(['times as fast as', 'goal', 'measured', '', 'bound'], rows)}\n\n{note}"


def agreement(m: Measured) -> str:
    """How far the numbers of the sides lie apart."""
    names = list(next(iter(m.differences.values())))
    rows = [[side, *(f"{m.differences[side][name]:.1e}" for name in names)] for side in m.differences]
    return (
        "Before the clock counts, all sides must give the same numbers, unedited and for every edit. Largest difference "
        f"from sinkjax over all entries, relative to the entry and {ROUNDING / TOLERANCE:.1e} of the largest one (of "
        "`resid_argmax`, the share of entries that differ):\n\n" + table(["", *names], rows)
    )


def rates(m: Measured) -> str:
    """Achieved GFLOP/s beside those of a plain matrix product."""
    rows = []
    for side in m.versions:
        row = [side]
        for task in TASKS:
            flops = m.passes[task][side] * m.block_flops
            row += [str(m.passes[task][side]), f"{flops / median(m.seconds[task][side]) / 1e9:.0f}"]
        rows.append(row)
    products = "; ".join(f"{library} {spread(values, '.0f')}" for library, values in m.matmul.items())
    header = ["", *(f"{TASKS[task]}, {unit}" for task in TASKS for unit in ("blocks", "GFLOP/s"))]
    return (
        f"Achieved rate, counting the matrix products of the blocks that are computed ({m.block_flops / 1e9:.2f} GFLOP each on "
        f"all prompts):\n\n{table(header, rows)}\n\nA float32 matrix product of 2048 x 2048 here, GFLOP/s: {products}."
    )


def compilation(m: Measured) -> str:
    """What compiling costs, in a first and in a second process, and by depth."""
    first = [[f"first call, {cache} cache", *(f"{m.first_calls[cache][task]:.1f}" for task in TASKS)] for cache in m.first_calls]
    first.append(["later calls", *(f"{median(m.seconds[task][OURS]):.1f}" for task in TASKS)])
    depths = [depth for depth in m.compiled if depth != m.model_layers]
    header = ["compiled program", *(f"{depth} layers, {step}" for depth in depths for step in ("trace", "compile"))]
    programs = [
        [name, *(f"{m.compiled[depth]['programs'][name][step]:.2f}" for depth in depths for step in ("trace", "compile"))]
        for name in m.compiled[m.model_layers]["programs"]
    ]
    return (
        "Compilation is not part of the times above. A process's first call, in seconds, with an empty compilation cache and in "
        f"a second process with the cache that the first one filled:\n\n{table(['', *TASKS.values()], first)}\n\n"
        f"Seconds to trace and to compile, without a cache, for models of other depths:\n\n{table(header, programs)}"
    )


def memory(m: Measured) -> str:
    """Bytes planned before the run, beside those that the compiled programs ask for."""
    reply = m.compiled[m.model_layers]
    planned = ", ".join(f"{part} {size / 1e6:.2f}" for part, size in reply["planned"].items())
    parts = ("arguments", "results", "temporaries")
    rows = []
    for name, program in reply["programs"].items():
        sizes = [program[part] for part in parts]
        rows.append([name, *(f"{size / 1e6:.2f}" for size in (*sizes, sum(sizes)))])
    total = sum(reply["planned"].values())
    return (
        f"Memory, in MB. Planned for a call of the sweep: {planned}; {total / 1e6:.2f} in all. Of the compiled programs:\n\n"
        + table(["", *parts, "in all"], rows)
    )


def ratios(m: Measured, task: str, side: str) -> list[float]:
    """How many times as long as sinkjax a side took, round by round."""
    return [theirs / ours for theirs, ours in zip(m.seconds[task][side], m.seconds[task][OURS], strict=True)]


def spread(values: Sequence[float], form: str = ".2f") -> str:
    """Median (smallest to largest)."""
    return f"{median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first column to the left, the others to the right."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
