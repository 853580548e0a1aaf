"""How masking the first key moves the sink of each block of pretrain/families: a section of docs/pretraining.md.

    sinkjax run kiya/mask --checkpoints results/pretrain/families/gpt2/models --bos model --out results/masks/gpt2
    python scripts/family_masks.py results/masks

The numbers of each row's models are kept beside the logs of their training, so that rows may be added one by one.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sections import markdown, table_of, write_section

from sinkjax.analysis import intervals
from sinkjax.analysis.estimates import in_words
from sinkjax.config_files.files import write
from sinkjax.studies.series import TABLE

DOCS = Path(__file__).parents[1] / "docs"
PAGE, LOGS = DOCS / "pretraining.md", DOCS / "pretraining-logs" / "families"
KEPT = "kiya-mask.csv"
EDITS = ("no edit", "all layers")
# Measure of the summary -> what the table shows of it: without an edit, and its change.
MEASURES = {
    "heads that sink on key 0 (%)": ("heads that sink on key 0 (%)", ""),  # a masked key has none
    "heads that sink on key 1 (%)": ("heads that sink on key 1 (%)", "change"),
    "largest |h| at position 0": ("largest activation at position 0", ""),  # which sees itself alone anyhow
    "largest |h| at position 1": ("at position 1", "change"),
    "loss (nats per token)": ("loss (nats)", "change"),
}
HEAD = ("checkpoint", "edit", "measure", "mean")
SAID = """`kiya/mask` on the last model of each run above: the unedited model, and the effect of masking the first key in all
layers for every query except its own. 64 documents of the packaged text after BOS; means over seeds, 95% intervals in
brackets. Described, not judged: four seeds per row."""


def main() -> None:
    """Keep what the folder holds, and write the section."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", help="a folder of series, each named as a row")
    parser.add_argument("--out", type=Path, default=PAGE, help="the page to write")
    parser.add_argument("--logs", type=Path, default=LOGS, help="where the numbers are kept")
    options = parser.parse_args()
    rows = {name: row["row"].get("label", name) for name, row in table_of("families")["trainings"].items()}
    for name in rows:
        if options.folder is not None and (found := options.folder / name / TABLE).is_file():
            keep(found, options.logs / name / KEPT)
    lines = [line(title, read(path)) for name, title in rows.items() if (path := options.logs / name / KEPT).is_file()]
    absent = [title for name, title in rows.items() if not (options.logs / name / KEPT).is_file()]
    head = ["block", "seeds", *(name for names in MEASURES.values() for name in names if name)]
    text = f"### How the mask of the first key moves it\n\n{SAID}" + (f"\nNot run: {'; '.join(absent)}." if absent else "")
    write_section(options.out, "pretrain/families masks", f"{text}\n\n{markdown(head, lines)}", "")
    print(options.out)


def keep(table: Path, home: Path) -> None:
    """Keep of a series' table what the section shows."""
    with table.open(encoding="utf-8", newline="") as file:
        chosen = [entry for entry in csv.DictReader(file) if entry["edit"] in EDITS and entry["measure"] in MEASURES]
    lines = [",".join(f'"{entry[name]}"' if "," in entry[name] else entry[name] for name in HEAD) for entry in chosen]
    write(home, "\n".join([",".join(HEAD), *lines]) + "\n")


def read(path: Path) -> dict[str, dict[str, NDArray[np.float64]]]:
    """Measure -> edit -> float[seed]."""
    with path.open(encoding="utf-8", newline="") as file:
        entries = [*csv.DictReader(file)]
    return {
        measure: {
            edit: np.array([float(one["mean"]) for one in entries if (one["edit"], one["measure"]) == (edit, measure)])
            for edit in EDITS
        }
        for measure in MEASURES
    }


def line(label: str, found: Mapping[str, Mapping[str, NDArray[np.float64]]]) -> list[str]:
    """A row of the table."""
    cells: list[str] = []
    for measure, (_, change) in MEASURES.items():
        before, after = (found[measure][edit] for edit in EDITS)
        cells.append(in_words(intervals.interval(before)))
        if change:
            cells.append(in_words(intervals.interval(after - before), signed=True))
    return [label, str(len(before)), *cells]


if __name__ == "__main__":
    main()
