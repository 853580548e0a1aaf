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
from sinkjax.edits.edit import resolve
from sinkjax.report.markdown import table as markdown
from sinkjax.runtime.hardware import Hardware
from sinkjax.study.choice import choose
from sinkjax.study.parts import specs
from sinkjax.study.registry import find
from sinkjax.sweeps.plan import TOKENS_PER_BLOCK, Plan, duration, plan_resolved
from sinkjax.sweeps.schedule import Schedule, cut_into_chunks, kind_of
from sinkjax.sweeps.sharing import origins, worth

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
    """A study's largest sweep, by numbers of processes and of the devices of each.

    plans: what is planned. finest: for plans below their goal, what calls of one prompt and one edit keep, and how many times as
    long they take.
    """

    study: str
    plans: dict[tuple[int, int], Plan]
    finest: dict[tuple[int, int], tuple[float, float]]


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
    sweep: Any = max(specs(find(study), config, architecture), key=lambda one: len(getattr(one, "edits", ())) * one.prompts)
    B, T, L = sweep.prompts, config.length, architecture.layers
    resolved = [resolve(edit, architecture, [T] * B, T) for edit in sweep.edits]

    def planned(processes: int, devices: int) -> Plan:
        hardware = Hardware(devices=devices, platform=PLATFORM, processes=processes)
        return plan_resolved(architecture, resolved, (B, T), sweep.probe, config.dtype, hardware)

    def finest(processes: int, devices: int, plan: Plan) -> tuple[float, float]:
        hardware = Hardware(devices=devices, platform=PLATFORM, processes=processes)
        groups: dict[object, list[int]] = {}
        for number, entry in enumerate(resolved):
            groups.setdefault(kind_of(entry), []).append(number)
        widths = (1,) * len(groups)
        starts = origins(resolved, architecture, worth(architecture, B, T, hardware.kind))
        single = Schedule(1, widths, cut_into_chunks([*groups.values()], widths, starts, L))
        blocks = duration(single, B, L, 1, hardware, extra=0)
        kept = plan.kept * plan.critical_passes * plan.schedule.prompt_block / blocks
        taken, planned = (duration(one, B, L, T, hardware, TOKENS_PER_BLOCK["gpu"]) for one in (single, plan.schedule))
        return kept, taken / planned

    plans = {shape: planned(*shape) for shape in GOALS}
    return Row(study, plans, {shape: finest(*shape, plan) for shape, plan in plans.items() if plan.kept < GOALS[shape]})


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
        for (processes, devices), plan in row.plans.items():
            found = row.finest.get((processes, devices))
            finest = [f"{found[0]:.2f}", f"{found[1]:.1f}"] if found else ["", ""]
            b, goal = plan.schedule.prompt_block, GOALS[processes, devices]
            met = ("met" if plan.kept >= goal else "missed") if goal else ""
            lines.append(
                [
                    f"{row.study}: {plan.edits} edits x {plan.prompts} prompts",
                    f"{processes} x {devices}",
                    f"{plan.processes}",
                    f"{b}",
                    " ".join(str(width) for width in plan.schedule.widths),
                    f"{b * plan.positions * max(plan.schedule.widths):,}",
                    f"{plan.rounds}",
                    f"{plan.kept:.2f}",
                    f"{plan.kept * processes * devices:.1f}",
                    f"{goal:.2f}" if goal else "",
                    met,
                    *finest,
                ]
            )
    head = [
        "sweep",
        "processes x devices",
        "of use",
        "prompts a call",
        "edits a call, by kind",
        "tokens, at most",
        "calls of a device",
    ]
    head += ["kept", "times as fast", "goal, kept", "", "kept by the smallest calls", "times as long"]
    return filled(
        "devices",
        prompts=PROMPTS,
        model=MODEL,
        platform=PLATFORM,
        ahead=Hardware(devices=2).calls_ahead,
        extra=TOKENS_PER_BLOCK["gpu"],
        tokens=rows[0].plans[1, 1].positions,
        table=markdown(head, lines),
    )


if __name__ == "__main__":
    main()
