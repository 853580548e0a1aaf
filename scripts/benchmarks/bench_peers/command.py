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
from sinkjax.runtime.backend import processor

sys.path.append(str(ROOT / "scripts"))
from sections import write_section
from templates import given, page

PAGE = ROOT / "docs" / "results" / "benchmarks.md"
HEAD = "# Benchmarks"


def parser(about: str | None, name: str, quick: str) -> argparse.ArgumentParser:
    """The options of every benchmark. about: the script's docstring. name: of its section. quick: what --quick does."""
    found = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--quick", action="store_true", help=f"{quick}; nothing is written")
    found.add_argument("--section", default=name, metavar="NAME", help="of the page; one for each machine")
    found.add_argument(
        "--page", type=Path, default=PAGE, metavar="FILE", help="where to write (default docs/results/benchmarks.md)"
    )
    return found


def publish(text: str, options: argparse.Namespace) -> None:
    """Print the section of a quick run; write any other one into its page."""
    if options.quick:
        print(text)
    else:
        write_section(options.page, options.section, text, HEAD)
        print(f"written: {options.page}")


def filled(template: str, **numbers: object) -> str:
    """The section of a template of scripts/templates/benchmarks, with the machine and the day. A paragraph is one line."""
    machine = {"date": date.today().isoformat(), "cpu": f"{processor()} with {vectors()}", "cores": CORES, "vectors": vectors()}
    return page(f"benchmarks/{template}.md", given(machine | numbers), width=100_000).strip()


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
