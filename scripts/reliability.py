"""Try wrong inputs, damaged files, races, kills, signals and full disks, and write the counts into docs/reliability.md.

python scripts/reliability.py                      # a first look: half an hour on two cores
python scripts/reliability.py --mutations 100000   # of each parser: a night
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["HF_HUB_OFFLINE"] = "1"

from sections import markdown, write_section  # noqa: E402

from tests.robustness import broken, cases, fuzz  # noqa: E402

PAGE = ROOT / "docs" / "reliability.md"
HEAD = "# Nothing lost, nothing silently wrong"
KINDS = {"cli": "wrong commands", "api": "wrong calls from Python"}
SUITES = {
    "test_stores.py": "stores that are damaged or half-made",
    "test_races.py": "races of processes for one store",
    "test_models.py": "models: saved over, refused, broken off",
    "test_full_disk.py": "full disks and limits on file sizes",
    "test_signals.py": "SIGINT and SIGTERM",
}


def main() -> None:
    """Try everything and write the section."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mutations", type=int, default=3_000, help="of each parser")
    parser.add_argument("--seed", type=int, default=0, help="of the mutations")
    parser.add_argument("--suites", action=argparse.BooleanOptionalAction, default=True, help="run the suites too")
    options = parser.parse_args()
    begun = time.monotonic()
    parts = [wrong_input(), mutations(options.mutations, options.seed), *([suites()] if options.suites else [])]
    made = f"Measured on {date.today()} in {(time.monotonic() - begun) / 60:.0f} minutes by `python scripts/reliability.py"
    parts.append(f"{made} --mutations {options.mutations}{'' if options.suites else ' --no-suites'}`.")
    write_section(PAGE, "counts", "\n\n".join(parts), HEAD)
    print(PAGE)


def wrong_input() -> str:
    """Every case of wrong input, and how many were refused in their sentence."""
    lines = []
    for kind, what in KINDS.items():
        with tempfile.TemporaryDirectory() as folder:
            every, home = cases.cases(kind), broken.write(Path(folder))
            wrong = [number for number, outcome in cases.apart(kind, home) if outcome.wrong(every[number])]
        lines.append([what, str(len(every)), str(len(every) - len(wrong)), str(len(wrong))])
    return "### Wrong input\n\n" + markdown(["", "tried", "refused in their sentence", "wrong"], lines)


def mutations(count: int, seed: int) -> str:
    """Mutated files of each parser, and what became of them."""
    lines = []
    for name in fuzz.PARSERS:
        found, _ = fuzz.fuzz(name, seed, range(count))
        lines.append([name, f"{count:,}", *(f"{found[kind]:,}" for kind in (fuzz.READ, fuzz.REFUSED, fuzz.WRONG))])
    return f"### Mutated files (seed {seed})\n\n" + markdown(["parser", "tried", "read", "refused in a sentence", "wrong"], lines)


def suites() -> str:
    """The tests of each suite, the long ones too, and how many passed."""
    lines = []
    for name, what in SUITES.items():
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.xml"
            command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", f"tests/robustness/{name}"]
            subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.DEVNULL)
            outcomes = Counter(outcome(case) for case in ET.parse(report).iter("testcase"))
        lines.append([what, str(outcomes.total()), *(str(outcomes[kind]) for kind in ("passed", "failed", "skipped"))])
    return "### Suites of `tests/robustness`\n\n" + markdown(["", "tests", "passed", "failed", "skipped"], lines)


def outcome(case: ET.Element) -> str:
    """What became of a test, by its element in a report of pytest."""
    tags = {child.tag for child in case}
    return "failed" if tags & {"failure", "error"} else "skipped" if "skipped" in tags else "passed"


if __name__ == "__main__":
    main()
