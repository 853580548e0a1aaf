"""Retrofit a model and measure it beside the one that it was made of: docs/results/retrofit.md and data/retrofit.csv.

    python scripts/retrofit.py smollm2-135m WIKI BOOKS --steps 100
    python scripts/retrofit.py page                                   the page from the table alone

WIKI: the articles of WikiText-2's test split, of which every eighth is not trained on; BOOKS: a folder of novels.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from named import DATA, DOCS, Named, Row, read
from templates import page

import sinkjax
from sinkjax.config_files.files import write
from sinkjax.config_files.tables import csv_text
from sinkjax.data.corpora import checked
from sinkjax.report.markdown import table as markdown

SETTINGS: dict[str, dict[str, Any]] = {
    "loss": {},
    "8 bits, a scale per tensor": {"weights": 8, "activations": 8, "kv": 8},
    "window of 16 keys": {"cache": sinkjax.Streaming(0, 16)},
}
TABLE, ENDS, LARGEST = f"{DATA}/retrofit.csv", ("change", "low", "high"), "largest activation"
LENGTH, BATCH, LEFT_OUT, CHARACTERS = 128, 8, 8, 2_000
WAYS = {"as it is": None, "prefix kept": (0, "learned"), "trained": (1, "learned"), "value 0, trained": (1, "zero")}


def main() -> None:
    """Measure and write the table, unless it is kept, and write the page."""
    if sys.argv[1:] != ["page"]:
        columns = ("model", "where", "quantity", "value", "change", "low", "high", "texts")
        write(DOCS / TABLE, csv_text([columns, *measured()]))
    rows = read(DOCS / TABLE)
    largest = [float(row["value"]) for row in rows if row["quantity"] == LARGEST and row["model"] in ("as it is", "trained")]
    numbers = {"table": table(rows), "smaller": f"{largest[0] / largest[1]:.0f}"}
    write(DOCS / "results/retrofit.md", page("retrofit.md", Named(DOCS, **numbers)))


def measured() -> list[tuple[Any, ...]]:
    """The rows of the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("articles", type=Path)
    parser.add_argument("books", type=Path)
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    articles = ["\n".join(document.passages) for document in checked(str(options.articles), 1, "all", 1, "text", "auto")[0]]
    books = [path.read_text(encoding="utf-8")[CHARACTERS : 2 * CHARACTERS] for path in sorted(options.books.glob("*.txt"))]
    held_out = {"articles": [text[:CHARACTERS] for text in articles[::LEFT_OUT]], "novels": books}
    trained = [text for number, text in enumerate(articles) if number % LEFT_OUT]
    model = sinkjax.load(options.model)
    rows: list[tuple[Any, ...]] = []
    plain: dict[str, np.ndarray] = {}
    for way, how in WAYS.items():
        same: dict[str, Any] = {"batch": BATCH, "length": LENGTH}
        made = model if how is None else sinkjax.retrofit(model, trained, how[0] * options.steps, how[1], **same)
        for where, texts in held_out.items():
            losses = {name: sinkjax.evaluate(made, texts, bos="none", **given).by_text() for name, given in SETTINGS.items()}
            plain.setdefault(where, losses["loss"])
            for name, values in losses.items():
                change = values - (plain[where] if name == "loss" else losses["loss"])
                ends = sinkjax.intervals.interval(change)
                rows.append(
                    (
                        way,
                        where,
                        name,
                        f"{values.mean():.4f}",
                        *(f"{x:.4f}" for x in (ends.mean, ends.low, ends.high)),
                        len(values),
                    )
                )
        tokens, lengths = sinkjax.encode(made, [text[:LENGTH] for text in held_out["articles"]], bos="none")
        record = sinkjax.forward(made, tokens, probe=sinkjax.Probe(resid_max=True), lengths=lengths, logits=False).record
        rows.append((way, "articles", LARGEST, f"{np.nanmax(record['resid_max']):.0f}", "", "", "", len(tokens)))
        print(*rows[-1], sep=", ", flush=True)
    return rows


def table(rows: Sequence[Row]) -> str:
    """The changes of each quantity, a row for each model."""
    names = list(dict.fromkeys((row["where"], row["quantity"]) for row in rows))
    cells = {(row["model"], row["where"], row["quantity"]): cell(row) for row in rows}
    lines = [(way, *(cells[way, where, name] for where, name in names)) for way in WAYS]
    return markdown(("", *(f"{name} ({where})" for where, name in names)), lines)


def cell(row: Row) -> str:
    """A change with its interval, or the value of what has none."""
    return "{:+.2f} [{:+.2f}, {:+.2f}]".format(*(float(row[name]) for name in ENDS)) if row["change"] else row["value"]


if __name__ == "__main__":
    main()
