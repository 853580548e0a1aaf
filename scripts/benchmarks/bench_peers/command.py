"""What the commands of all benchmarks share: their options, what they say, and the page on which a section is written."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from statistics import median

from bench_peers.worker import CORES, ROOT
from sinkjax.analysis.estimates import three_digits
from sinkjax.report.markdown import table as markdown
from sinkjax.runtime.backend import processor

sys.path.append(str(ROOT / "scripts"))
from measured import FULL, HEAD, Number, keep
from sections import write_section
from templates import given, page


def parser(about: str | None, name: str, quick: str) -> argparse.ArgumentParser:
    """The options of every benchmark. about: the script's docstring. name: of its section. quick: what --quick does."""
    found = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--quick", action="store_true", help=f"{quick}; nothing is written")
    found.add_argument("--section", default=name, metavar="NAME", help="of the page; one for each machine")
    found.add_argument(
        "--page", type=Path, default=FULL, metavar="FILE", help="where to write (default docs/results/benchmarks-full.md)"
    )
    found.set_defaults(script=name)
    return found


def publish(text: str, options: argparse.Namespace, numbers: Sequence[Number], device: str = "", near: str = "") -> None:
    """Print the section of a quick run; write any other one into its page, and its numbers into the table beside it.

    device: what was measured, by default this processor. near: the section before a new one, by default this script's own.
    """
    if options.quick:
        print(text)
        return
    write_section(options.page, options.section, text, HEAD, near or options.script)
    keep(options.page, options.section, numbers, device or cpu(), date.today().isoformat(), f"{options.script}.py")
    print(f"written: {options.page} and its numbers; scripts/benchmarks_figure.py and scripts/front_page.py show them")


def filled(template: str, **numbers: object) -> str:
    """The section of a template of scripts/templates/benchmarks, with the machine and the day. A paragraph is one line."""
    machine = {"date": date.today().isoformat(), "cpu": cpu(), "cores": CORES}
    return page(f"benchmarks/{template}.md", given(machine | numbers), width=100_000).strip()


def table_of(numbers: Sequence[Number]) -> str:
    """Numbers with their goals and bounds, in Markdown."""
    rows = [[one.measure, one.spread(), one.goal, one.bound, one.met] for one in numbers]
    return markdown(("what", "measured", "goal", "bound", ""), rows)


def cpu() -> str:
    """The processor and its widest vector instructions, as text."""
    return f"{processor().replace('(R)', '').removesuffix(' Processor')} with {vectors()}"


def vectors() -> str:
    """The widest vector instructions of the processor, as Linux names them; libraries differ in which of them they use."""
    listed = Path("/proc/cpuinfo")
    flags = listed.read_text().split() if listed.exists() else []
    return next(
        (name for name, flag in {"AVX-512": "avx512f", "AVX2": "avx2", "SVE": "sve"}.items() if flag in flags), "none known"
    )


def say(text: str) -> None:
    """Progress, on the error stream."""
    print(text, file=sys.stderr, flush=True)


def span(taken: Sequence[float]) -> str:
    """Median, smallest and largest, in three digits."""
    return f"{three_digits(median(taken))} ({three_digits(min(taken))} to {three_digits(max(taken))})"
