"""Plan sweeps of the studies on many devices, and say how much of the devices' time is kept: docs/benchmarks.md.

python scripts/bench_devices.py             about a minute; nothing but plans is computed, and no weights are read
python scripts/bench_devices.py --quick     one study; prints the section and writes nothing
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench_peers import command
from bench_peers.command import say
from sections import markdown

from sinkjax.checkpoints.load import open_checkpoint
from sinkjax.edits.edit import resolve
from sinkjax.studies.registry import choose, find
from sinkjax.studies.specs import specs
from sinkjax.sweeps.hardware import Hardware
from sinkjax.sweeps.plan import TOKENS_PER_BLOCK, Plan, plan_resolved

MODEL = "untrained:llama-3.2-3b"
PLATFORM = "h200"
STUDIES = ("kiya/self", "li/isolate", "background/patch", "kiya/mask")
GOALS = {1: 0.0, 8: 0.85, 64: 0.70}  # devices -> of their time


@dataclass(frozen=True)
class Row:
    """The plans of a study's main sweep, by number of devices."""

    study: str
    plans: dict[int, Plan]


def main(arguments: Sequence[str] | None = None) -> None:
    """Plan, and write or print the section."""
    options = command.parser(__doc__, "bench_devices", "one study").parse_args(arguments)
    command.publish(section([measure(study) for study in (STUDIES[-1:] if options.quick else STUDIES)]), options)


def measure(study: str) -> Row:
    """The main sweep of a study, on its own prompts."""
    say(study)
    config: Any = dataclasses.replace(choose(study).config, model=MODEL)
    architecture = open_checkpoint(MODEL, weights=False).config
    sweep: Any = specs(find(study), config, architecture)[0]
    lengths, T = [config.length] * sweep.prompts, config.length
    resolved = [resolve(edit, architecture, lengths, T) for edit in sweep.edits]

    def planned(devices: int) -> Plan:
        hardware = Hardware(devices=devices, platform=PLATFORM)
        return plan_resolved(architecture, resolved, (sweep.prompts, T), sweep.probe, config.dtype, hardware)

    return Row(study, {devices: planned(devices) for devices in GOALS})


def section(rows: Sequence[Row]) -> str:
    """The section, in Markdown."""
    lines = []
    for row in rows:
        for devices, plan in row.plans.items():
            b, goal = plan.schedule.prompt_block, GOALS[devices]
            met = ("met" if plan.kept >= goal else "missed") if goal else ""
            lines.append(
                [
                    f"{row.study}: {plan.edits} edits x {plan.prompts} prompts",
                    f"{devices}",
                    f"{b}",
                    " ".join(str(width) for width in plan.schedule.widths),
                    f"{b * plan.positions * max(plan.schedule.widths):,}",
                    f"{plan.rounds}",
                    f"{plan.kept:.2f}",
                    f"{plan.kept * devices:.1f}",
                    f"{goal:.2f}" if goal else "",
                    met,
                ]
            )
    head = ["sweep", "devices", "prompts a call", "edits a call, by kind", "tokens, at most", "calls of a device"]
    head += ["kept", "times as fast", "goal, kept", ""]
    return "\n\n".join(
        (
            "## Sweeps on many devices",
            f"The main sweep of each study on the shape of Llama-3.2-3B in float32, as `sinkjax plan STUDY --model {MODEL} "
            f"--platform {PLATFORM} --devices N` plans it and a sweep carries it out; nothing is timed here. *Kept* is the "
            "part of the devices' time that goes into blocks that one device would have to run, each edit from its own "
            "start: 1 means that no block is run for the sake of a neighbour in a call, or twice, and that no device "
            f"waits. Times are counted in blocks of one prompt, and a device may be {Hardware(devices=2).calls_ahead} "
            "calls ahead of the slowest. That a call of few tokens uses a device less well is left out, but the plan "
            f"weighs it: it takes a block to cost its tokens and {TOKENS_PER_BLOCK['gpu']} more, a number that was set and "
            "not measured. `python scripts/bench_devices.py` writes this section.",
            markdown(head, lines),
        )
    )


if __name__ == "__main__":
    main()
