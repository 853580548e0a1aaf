"""Compare the time and memory that `sinkjax plan` states for studies with those of their runs: docs/results/benchmarks-full.md.

python scripts/benchmarks/bench_studies.py             an hour on two cores, 4 GB of memory; Gemma 3 270M must be installed
python scripts/benchmarks/bench_studies.py --quick     mini-softmax; prints the section and writes nothing

Each run's numbers are kept in .cache/bench_studies and not measured again while they lie there.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

import jax
from bench_peers import command
from bench_peers.command import filled, say
from bench_peers.worker import ROOT
from measured import Number, as_number

from sinkjax.report.markdown import table as markdown
from sinkjax.study.plan import block_seconds, study_bytes
from sinkjax.study.registry import choose
from sinkjax.study.run import work

KEPT = ROOT / ".cache" / "bench_studies"
NAMES = {"smollm2-135m": "SmolLM2", "gemma3-270m": "Gemma 3 270M", "mini-softmax": "mini-softmax"}
BOS = {"smollm2-135m": "none", "gemma3-270m": "model", "mini-softmax": "model"}
GOAL = 0.15


@dataclass(frozen=True)
class Case:
    """A run: its study, its model and its number of prompts."""

    study: str
    model: str
    prompts: int

    def options(self) -> list[str]:
        return ["--model", self.model, "--bos", BOS[self.model], "--prompts", str(self.prompts), "--text", "packaged"]


STUDIES = (
    *(Case("kiya/mask", model, prompts) for model in ("smollm2-135m", "gemma3-270m") for prompts in (4, 16)),
    *(Case("sweep/first-key", model, 16) for model in ("smollm2-135m", "gemma3-270m")),
)
QUICK = (Case("kiya/mask", "mini-softmax", 4), Case("sweep/first-key", "mini-softmax", 16))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what was not measured yet, and write or print the section."""
    options = command.parser(__doc__, "bench_studies", "mini-softmax").parse_args(arguments)
    text, numbers = section(QUICK if options.quick else STUDIES)
    command.publish(text, options, numbers)


def measured(case: Case) -> dict[str, float | str]:
    """Seconds of processor time and bytes of resident memory of a run in a process of its own, without a compilation cache."""
    kept = KEPT / f"{case.study.replace('/', '-')}-{case.model}-{case.prompts}.json"
    if not kept.exists():
        say(f"{case.study} on {case.model}, {case.prompts} prompts")
        with tempfile.TemporaryDirectory() as name:
            verb = "sweep" if case.study.startswith("sweep/") else "run"
            line = [sys.executable, "-m", "sinkjax", verb, case.study, *case.options(), "--out", str(Path(name) / "out")]
            environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(Path(name) / "jax")}
            process = subprocess.Popen(line, env=environment, stdout=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            if status:
                raise SystemExit(f"{' '.join(line)} ended with {os.waitstatus_to_exitcode(status)}")
        save(kept, usage)
    found: dict[str, float | str] = json.loads(kept.read_text())
    return found


def save(kept: Path, usage: resource.struct_rusage) -> None:
    """Keep what a run took."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    seconds, size = usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024
    kept.write_text(json.dumps({"seconds": seconds, "bytes": size, "on": date.today().isoformat()}))


def planned(case: Case) -> tuple[float, int]:
    """Processor time of blocks, and memory, as `sinkjax plan` states them."""
    chosen = choose(case.study)
    config = replace(chosen.config, model=case.model, bos=BOS[case.model], prompts=case.prompts, text="packaged")
    every = [*work(replace(chosen, config=config))]
    parts, architecture = [(spec, plan) for spec, _, plan in every], every[0][1]
    return block_seconds(parts, architecture, config.dtype), study_bytes(parts, architecture, config.dtype)


def section(studies: Sequence[Case]) -> tuple[str, list[Number]]:
    """The section, in Markdown, and its numbers."""
    lines, days, numbers = [], [], []
    for case in studies:
        (seconds, size), run = planned(case), measured(case)
        taken, used = float(run["seconds"]), float(run["bytes"])
        times = [f"{seconds:,.0f}", f"{taken:,.0f}", f"{seconds / taken:.0%}"]
        ratio = size / used
        memory = [f"{size / 1e9:.2f}", f"{used / 1e9:.2f}", f"{ratio:.2f}"]
        name = f"{case.study}, {NAMES[case.model]}, {case.prompts} prompts"
        numbers.append(as_number(name, [round(ratio, 2)], ".2f", (1 - GOAL, 1 + GOAL)))
        lines.append([case.study, NAMES[case.model], str(case.prompts), *times, *memory, numbers[-1].met])
        days.append(str(run["on"]))
    head = (
        *("study", "model", "prompts", "blocks, planned, s", "run, s", "share of blocks"),
        *("planned, GB", "measured, GB", "ratio", "goal"),
    )
    measured_on = " and ".join(sorted({*days}))
    text = filled("studies", goal=f"{GOAL:.0%}", days=measured_on, jax=jax.__version__, table=markdown(head, lines))
    return text, numbers


if __name__ == "__main__":
    main()
