"""Show that a change of the code moves no number: run every study small, before and after, and compare the summaries.

python scripts/compare_numbers.py run FOLDER [NAME ...]   # every study on mini-softmax, or a few steps of its trainings
python scripts/compare_numbers.py BEFORE AFTER            # every cell of every summary.csv and claims.csv below two folders

Run the first command in a checkout of each state. The second one also compares folders of complete runs; it prints the rows that
differ and exits with 1 if there are any.
"""

from __future__ import annotations

import csv
import itertools
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from sinkjax.analysis import intervals
from sinkjax.analysis.summary import summary_csv
from sinkjax.analysis.verdicts import verdicts_csv
from sinkjax.errors import SinkjaxError
from sinkjax.study import rebuild, run
from sinkjax.study.registry import find, studies, trains

TABLES = ("summary.csv", "claims.csv")
RESAMPLES = 200  # of a bootstrap, in place of the thousands of a real run
SHOWN = 20  # differences that are printed
LENGTH = 24
ON_A_MODEL = {"model": "mini-softmax", "bos": "model", "prompts": 4, "length": LENGTH}
FEW = {"controls": 3, "control_prompts": 3}  # of the studies that have them
TRAINED = {"seeds": 2, "steps": 20}
FITTED = {  # what makes a study fit a model of 4 layers and prompts of LENGTH tokens, or its training short
    "background/streaming": {"cache": 8, "caches": [6, 8], "keep": 2, "keeps": [0, 1, 2]},
    "background/patch": {"places": [0, 1, 5]},
    "gu/repeat-bound": {"longest": LENGTH},
    "gu/positions": {"places": [4, 9], "text_places": [4]},
    "kiya/bos-swap": {"positions": [8], "shown": 8},
    "kiya/figures": {"map_layers": [0], "position": 8},
    "kiya/predictions": {"positions": [1, 8], "tokens": 20},
    "kiya/rope": {"positions": [1, 8]},
    "kiya/split": {"places": [4, 8, 10], "counts": [1, 3]},
    "kiya/self": {"positions": [4, 8], "shown": 8},
    "li/amplify": {"positions": [10]},
    "li/mediation": {"places": [6, 10, 16]},
    "emergence/causal": {"kept": 2, "prompts": 4},
    "trigger/bound": {"cap_seeds": 2, "cap_steps": 20, "sequences": 200},
}
LEFT_OUT = ("sweep",)  # has no edits of its own


def run_small(out: Path, names: list[str]) -> None:
    """Run studies into a folder for each, without pages; a refusal is printed."""
    intervals.RESAMPLES, run.build = RESAMPLES, rebuild.section_of
    for name in names or [name for name in studies() if name not in LEFT_OUT]:
        start = time.monotonic()
        have = set(find(name).settings.__dataclass_fields__)
        fields = {**TRAINED, "sequences": 200, "map_sequences": 20} if trains(name) else {**ON_A_MODEL, **FEW}
        fields = {key: value for key, value in fields.items() if key in have} | FITTED.get(name, {})
        try:
            folder = out / name.replace("/", "-")
            section = run.run(name, folder, **fields)
            (folder / TABLES[0]).write_text(summary_csv(section.rows, section.subject), encoding="utf-8")
            (folder / TABLES[1]).write_text(verdicts_csv(section.study, section.verdicts), encoding="utf-8")
            found = "done"
        except SinkjaxError as error:
            found = f"refused: {error}"
        print(f"{name} ({time.monotonic() - start:.0f} s): {found}", flush=True)


def tables(folder: Path) -> dict[str, Path]:
    """The tables below a folder, by their paths in it."""
    return {str(path.relative_to(folder)): path for table in TABLES for path in sorted(folder.rglob(table))}


def differences(before: Path, after: Path) -> Iterator[tuple[int, str]]:
    """Each pair of rows: how many cells were compared, and the first cell that differs as text, or ""."""
    with before.open(newline="", encoding="utf-8") as one, after.open(newline="", encoding="utf-8") as other:
        for number, (old, new) in enumerate(itertools.zip_longest(csv.reader(one), csv.reader(other), fillvalue=[])):
            pairs = list(itertools.zip_longest(old, new, fillvalue="(nothing)"))
            odd = next((f"row {number}, column {place}: {a!r} -> {b!r}" for place, (a, b) in enumerate(pairs) if a != b), "")
            yield len(pairs), odd


def compare(before: Path, after: Path) -> int:
    """Print what differs; returns the number of differing rows and tables."""
    old, new = tables(before), tables(after)
    if not {*old} & {*new}:
        print(f"no {' or '.join(TABLES)} is in both {before} and {after}")
        return 1
    found = [f"{name} is only in {before if name in old else after}" for name in sorted({*old} ^ {*new})]
    cells = 0
    for name in sorted({*old} & {*new}):
        for count, odd in differences(old[name], new[name]):
            cells += count
            found += [f"{name}: {odd}"] if odd else []
    for line in found[:SHOWN]:
        print(line)
    print(f"{cells:,} cells of {len({*old} & {*new})} tables compared; {len(found)} rows or tables differ")
    return len(found)


def main(arguments: list[str]) -> int:
    """The command line."""
    if arguments[:1] == ["run"] and len(arguments) > 1:
        run_small(Path(arguments[1]), arguments[2:])
        return 0
    if len(arguments) != 2:
        print(__doc__)
        return 2
    return int(compare(*map(Path, arguments)) > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
