"""Plan sweeps of studies on many processes and devices, and say how much of their time is used: docs/results/benchmarks-full.md.

python scripts/benchmarks/bench_devices.py             about a minute; nothing but plans is computed, and no weights are read
python scripts/benchmarks/bench_devices.py --quick     one study; prints the section and writes nothing
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench_peers import command
from bench_peers.command import filled, say
from measured import Number, as_number

from sinkjax.checkpoints.load import open_checkpoint
from sinkjax.report.markdown import table as markdown
from sinkjax.runtime.hardware import Hardware
from sinkjax.study.parts import Part, specs
from sinkjax.study.registry import choose, find
from sinkjax.sweeps.plan import TOKENS_PER_BLOCK, Plan, plan

MODEL = "untrained:llama-3.2-3b"
PLATFORM = "h200"
PROMPTS = 64
STUDIES = ("kiya/self", "li/isolate", "background/patch", "kiya/mask")
GOALS = {
    (1, 1): 0.0,
    (1, 8): 0.85,
    (1, 64): 0.70,
    (8, 1): 0.85,
    (8, 8): 0.85,
    (64, 1): 0.70,
}  # processes, devices of each -> of their time


@dataclass(frozen=True)
class Row:
    """A study's largest sweep: its plan by numbers of processes and of the devices of each."""

    study: str
    plans: dict[tuple[int, int], Plan]


def main(arguments: Sequence[str] | None = None) -> None:
    """Plan, and write or print the section."""
    options = command.parser(__doc__, "bench_devices", "one study").parse_args(arguments)
    rows = [measure(study) for study in (STUDIES[-1:] if options.quick else STUDIES)]
    command.publish(section(rows), options, numbers(rows), f"plan for {PLATFORM}")


def measure(study: str) -> Row:
    """The largest sweep of a study."""
    say(study)
    config: Any = dataclasses.replace(choose(study).config, model=MODEL, prompts=PROMPTS)
    architecture = open_checkpoint(MODEL, weights=False).config
    sweep: Any = max(
        (one for one in specs(find(study).trace(config, architecture)) if isinstance(one, Part)),
        key=lambda one: len(one.planned()) * one.prompts,
    )
    B, T, edits = sweep.prompts, config.length, sweep.planned()

    def planned(processes: int, devices: int) -> Plan:
        hardware = Hardware(devices=devices, platform=PLATFORM, processes=processes)
        return plan(architecture, edits, [T] * B, T, sweep.probe, config.dtype, hardware)

    return Row(study, {shape: planned(*shape) for shape in GOALS})


def numbers(rows: Sequence[Row]) -> list[Number]:
    """The part of the devices' time that is kept, where there is a goal."""
    return [
        as_number(f"{row.study}, {processes} x {devices}", [plan.kept], ".2f", (GOALS[processes, devices], None))
        for row in rows
        for (processes, devices), plan in row.plans.items()
        if GOALS[processes, devices]
    ]


def section(rows: Sequence[Row]) -> str:
    """The section, in Markdown."""
    lines = []
    for row in rows:
        for (processes, devices), made in row.plans.items():
            b, widths, goal = made.schedule.prompt_block, made.schedule.widths, GOALS[processes, devices]
            line = {
                "sweep": f"{row.study}: {made.edits} edits x {made.prompts} prompts",
                "processes x devices": f"{processes} x {devices}",
                "of use": f"{made.processes}",
                "prompts a call": f"{b}",
                "edits a call, by kind": " ".join(map(str, widths)),
                "tokens, at most": f"{b * made.positions * max(widths):,}",
                "calls of a device": f"{made.rounds}",
                "kept": f"{made.kept:.2f}",
                "times as fast": f"{made.kept * processes * devices:.1f}",
                "goal, kept": f"{goal:.2f}" if goal else "",
                "": ("met" if made.kept >= goal else "missed") if goal else "",
            }
            lines.append(line)
    return filled(
        "devices",
        prompts=PROMPTS,
        model=MODEL,
        platform=PLATFORM,
        ahead=Hardware(devices=2).calls_ahead,
        extra=TOKENS_PER_BLOCK["gpu"],
        table=markdown([*lines[0]], [[*line.values()] for line in lines]),
    )


if __name__ == "__main__":
    main()
