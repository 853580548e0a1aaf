"""Measure the memory that loading a model takes at its peak, beside the bytes of its shards: docs/results/benchmarks-full.md.

python scripts/benchmarks/bench_loading.py             about two minutes on two cores, 3 GB of memory, Linux
python scripts/benchmarks/bench_loading.py --quick     one case; prints the section and writes nothing
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import jax
from bench_peers import command
from bench_peers.command import filled, say
from measured import as_number

import sinkjax
from sinkjax.report.markdown import table as markdown

MODEL = "smollm2-135m"
GOAL = 1.15  # times the shards
MEASURE, DEVICES = "--measure", 4
DTYPES = ("float32", "bfloat16")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write or print the section."""
    options = command.parser(__doc__, "bench_loading", "one case").parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "model"
        sinkjax.export(sinkjax.load(MODEL), folder)
        sources = {"a folder, float32": str(folder), f"{MODEL}, a GGUF file": MODEL, f"untrained:{MODEL}": f"untrained:{MODEL}"}
        cases = [(what, dtype, model) for what in sources for dtype in DTYPES for model in (1, DEVICES)]
        rows = []
        for what, dtype, model in cases[-1:] if options.quick else cases:
            say(f"{what}, {dtype}, shards on {model}")
            rows.append((what, dtype, model, *measured(sources[what], dtype, model)))
    numbers = [
        as_number(f"{what}, {dtype}, {model} devices", [peak / shards], ".2f", (None, GOAL))
        for what, dtype, model, peak, shards in rows
    ]
    command.publish(section(rows), options, numbers)


def measured(source: str, dtype: str, model: int) -> tuple[int, int]:
    """Bytes at the peak, and bytes of the shards, of a load in a process of its own."""
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": str(DEVICES), "MALLOC_MMAP_THRESHOLD_": "131072"}
    line = [sys.executable, __file__, MEASURE, source, dtype, str(model)]
    peak, shards = subprocess.run(line, env=environment, capture_output=True, text=True, check=True).stdout.split()
    return int(peak), int(shards)


def measure(source: str, dtype: str, model: int) -> tuple[int, int]:
    """The same in this process, in which programs are compiled by an earlier load."""

    def load() -> int:
        mesh = None if model == 1 else jax.make_mesh((1, model), ("data", "model"))
        leaves = jax.tree.leaves(sinkjax.load(source, dtype=dtype, mesh=mesh).params)
        return sum(shard.data.nbytes for leaf in leaves for shard in leaf.addressable_shards)

    load()
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    shards = load()
    return resident("VmHWM") - before, shards


def resident(field: str) -> int:
    """Bytes of this process that are in memory, pages of mapped files included. field: "VmRSS", now; "VmHWM", at the peak."""
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def section(rows: Sequence[tuple[str, str, int, int, int]]) -> str:
    """The section, in Markdown."""
    lines = []
    for what, dtype, model, peak, shards in rows:
        met = "met" if peak <= GOAL * shards else "missed"
        lines.append([what, dtype, str(model), f"{shards / 1e6:,.0f}", f"{peak / 1e6:,.0f}", f"{peak / shards:.2f}", met])
    table = markdown(["source", "dtype", 'devices of "model"', "shards, MB", "peak, MB", "ratio", "goal"], lines)
    return filled("loading", devices=DEVICES, goal=GOAL, jax=jax.__version__, table=table)


if __name__ == "__main__":
    if sys.argv[1:2] == [MEASURE]:
        print(*measure(sys.argv[2], sys.argv[3], int(sys.argv[4])))
    else:
        main()
