"""Count the programs that a study compiles, and time their compilation: docs/results/benchmarks-full.md.

python scripts/benchmarks/bench_programs.py             a minute on two cores
python scripts/benchmarks/bench_programs.py --quick     4 prompts; prints the section and writes nothing
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import jax
from bench_peers import command
from bench_peers.command import filled
from measured import as_number

import sinkjax
from sinkjax.report.markdown import table as markdown

MODEL, STUDIES = "mini-softmax", ("kiya/mask", "kiya/self")
EVENT = "/jax/core/compile/backend_compile_duration"
SWEEPS = "jit(each)"  # the program of a sweep's call, which loops over layers
GOALS = {"programs": 30, "programs of sweeps": 6}  # at most, for kiya/mask


def main(arguments: Sequence[str] | None = None) -> None:
    """Count, and write or print the section."""
    options = command.parser(__doc__, "bench_programs", "4 prompts").parse_args(arguments)
    rows, numbers = [], []
    for study in STUDIES[:1] if options.quick else STUDIES:
        found = compiled(study, {"prompts": 4} if options.quick else {})
        counts = {"programs": len(found), "programs of sweeps": sum(name == SWEEPS for name, _ in found)}
        goals = GOALS if study == "kiya/mask" else {}
        made = [as_number(f"{study}, {what}", [count], ".0f", (None, goals.get(what))) for what, count in counts.items()]
        rows.append([study, *(one.value for one in made), f"{sum(seconds for _, seconds in found):.1f}"])
        numbers += made
    table = markdown(["study", *GOALS, "s to compile, all threads"], rows)
    goals = " and ".join(f"{most} {what}" for what, most in GOALS.items())
    command.publish(
        filled("programs", model=MODEL, goals=goals, jax=jax.__version__, table=table), options, numbers, near="bench_overhead"
    )


def compiled(study: str, settings: dict[str, int]) -> list[tuple[str, float]]:
    """The name of each program that a run of a study compiles, and its seconds."""
    found: list[tuple[str, float]] = []

    def note(event: str, duration: float, **about: object) -> None:
        if event == EVENT:
            found.append((str(about["fun_name"]), duration))

    jax.clear_caches()
    jax.monitoring.register_event_duration_secs_listener(note)
    with tempfile.TemporaryDirectory() as folder:
        sinkjax.run(study, out=Path(folder) / "out", model=MODEL, bos="model", text="packaged", **settings)
    jax.monitoring.clear_event_listeners()
    return found


if __name__ == "__main__":
    main()
