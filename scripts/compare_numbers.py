"""Show that a change of the code moves no number: run every study and two cards small, before and after, and compare the tables.

python scripts/compare_numbers.py run FOLDER [NAME ...]   # every study on mini-softmax or for a few steps, and two cards
python scripts/compare_numbers.py BEFORE AFTER            # every cell of each table in both folders

Run the first command in a checkout of each state. The second one also compares folders of complete runs; it prints the rows that
differ and exits with 1 if there are any. The cards are named card/mini-softmax and card/mini-sigmoid.

The golden tables are those of commit bcea367d. To make them again, run its own copy of this script for the studies, and this copy
for the cards, which the other does not know:

git worktree add ../golden bcea367d
(cd ../golden && PYTHONPATH=. python scripts/compare_numbers.py run ../golden-tables)
PYTHONPATH=../golden python scripts/compare_numbers.py run ../golden-tables card/mini-softmax card/mini-sigmoid
"""

from __future__ import annotations

import csv
import itertools
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from safetensors.numpy import load

import sinkjax
from sinkjax.errors import SinkjaxError

TABLES = ("summary.csv", "claims.csv", "numbers.csv")  # of a study the first two, of a card the third
CARDS = ("card/mini-softmax", "card/mini-sigmoid")
CARD_SIZE = {"prompts": 12, "length": 32, "more": True}
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
    "ours/off-signal": {"positions": [4, 8], "ends": [0]},
    "ours/off-subspace": {"positions": [4, 8], "dims": [1, 2], "ends": [0]},
    "emergence/causal": {"kept": 2, "prompts": 4},
    "trigger/bound": {"cap_seeds": 2, "cap_steps": 20, "sequences": 200},
}
LEFT_OUT = ("sweep",)  # has no edits of its own


def run_small(out: Path, names: list[str]) -> None:
    """Run studies and cards into a folder for each, without pages; a refusal is printed."""
    if not names:
        from sinkjax.study.registry import studies

        names = [name for name in studies() if name not in LEFT_OUT] + [*CARDS]
    for name in names:
        start = time.monotonic()
        folder = out / name.replace("/", "-")
        try:
            (card_small if name.startswith("card/") else study_small)(name, folder)
            outcome = "done"
        except SinkjaxError as error:
            outcome = f"refused: {error}"
        print(f"{name} ({time.monotonic() - start:.0f} s): {outcome}", flush=True)


def study_small(name: str, folder: Path) -> None:
    """Write summary.csv and claims.csv of a study with small settings."""
    from sinkjax.analysis import intervals
    from sinkjax.analysis.summary import summary_csv
    from sinkjax.analysis.verdicts import verdicts_csv
    from sinkjax.study import results, run
    from sinkjax.study.registry import find, trains

    intervals.RESAMPLES, run.build = RESAMPLES, results.section_of
    have = set(find(name).settings.__dataclass_fields__)
    fields = {**TRAINED, "sequences": 200, "map_sequences": 20} if trains(name) else {**ON_A_MODEL, **FEW}
    fields = {key: value for key, value in fields.items() if key in have} | FITTED.get(name, {})
    section = run.run(name, folder, **fields)
    (folder / TABLES[0]).write_text(summary_csv(section.rows, section.subject), encoding="utf-8")
    (folder / TABLES[1]).write_text(verdicts_csv(section.study, section.verdicts), encoding="utf-8")


def card_small(name: str, folder: Path) -> None:
    """Write numbers.csv of a small card with all costs: the numbers of its JSON files, and the norms of its prefix's arrays."""
    files = sinkjax.card(sinkjax.load(name.removeprefix("card/")), **CARD_SIZE).files()
    rows = [row for file in sorted(files) if file.endswith(".json") for row in numbers(json.loads(files[file]), file)]
    if "prefix.safetensors" in files:
        arrays = load(files["prefix.safetensors"])
        rows += [(f"prefix.safetensors/{key}", float(np.linalg.norm(np.float64(arrays[key])))) for key in sorted(arrays)]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / TABLES[2]).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


def numbers(value: object, path: str) -> Iterator[tuple[str, object]]:
    """Each number, truth value and null of a JSON value with its path; text may be reworded and is left out."""
    if isinstance(value, (dict, list)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from numbers(item, f"{path}/{key}")
    elif not isinstance(value, str):
        yield path, value


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
