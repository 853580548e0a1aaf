"""Sinks in many models: docs/results/models.md, its CSV and its figure, made from cards alone.

    python scripts/models.py                      make the page from the cards in docs/results/data/models
    python scripts/models.py --check FILE ...     say what is wrong with a card that somebody sent

`sinkjax card MODEL --share` writes such a card.
"""

from __future__ import annotations

import argparse
import html
import json
import sys
from pathlib import Path
from typing import Any

from templates import given, page

from sinkjax.cards.card import Card
from sinkjax.cards.compare import QUANTITIES, draw_heads, short_names
from sinkjax.cards.shared import read_card
from sinkjax.config_files.files import write
from sinkjax.config_files.tables import csv_text
from sinkjax.errors import SinkjaxError, printable
from sinkjax.report.figures.style import render
from sinkjax.report.markdown import table as markdown

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"
CARDS, TABLE, FIGURE = RESULTS / "data" / "models", RESULTS / "data" / "models.csv", RESULTS.parent / "images" / "models.svg"
TRAINED = "mini-"  # before the names of the packaged models, which are trained here
HIDDEN = ("on", "loss with its activation set to 0", "loss in 8 bits, a scale per token", "measured on")  # only in the CSV
SHOWN = [name for name in QUANTITIES if name not in HIDDEN]


def main() -> int:
    """Make the page, or check files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", nargs="+", type=Path, metavar="FILE", help="cards to check; nothing is written")
    if files := parser.parse_args().check:
        return sum([not checked(file) for file in files]) and 1
    cards = {file: read_card(file) for file in sorted(CARDS.glob("*.json"))}
    rows = {file: row(file, card) for file, card in cards.items()}
    write(TABLE, csv_text([["model", *QUANTITIES, "by", "date"], *rows.values()]))
    real, trained = ([file for file in cards if file.stem.startswith(TRAINED) == small] for small in (False, True))
    write(FIGURE, render(draw_heads([cards[file] for file in real]), "svg"))
    tables = {
        name: markdown(["model", *SHOWN, "measured by, on"], [shown(rows[file]) for file in files])
        for name, files in (("real", real), ("trained", trained))
    }
    write(RESULTS / "models.md", page("models.md", given({**tables, "count": len(real)})))
    return 0


def checked(file: Path) -> bool:
    """Say whether a card can be added, or what is wrong with it."""
    try:
        card = read_card(file)
    except SinkjaxError as error:
        print(f"{printable(str(file))}: {printable(str(error))}")
        return False
    print(f"{printable(str(file))}: the card of {printable(short_names([card])[0])} is whole")
    return True


def row(file: Path, card: Card) -> list[Any]:
    """The row of a card."""
    by = json.loads(file.read_text(encoding="utf-8")).get("shared") or {}
    return [
        *short_names([card]),
        *(of(card) for of in QUANTITIES.values()),
        str(by.get("by", ""))[:80],
        str(by.get("date", ""))[:10],
    ]


def shown(row: list[Any]) -> list[str]:
    """The cells of a row on the page; texts of a card that somebody sent are neither HTML nor links there."""
    name, *cells, by, date = (html.escape(str(cell), quote=False).replace("](", "] (") for cell in row)
    values = dict(zip(QUANTITIES, cells, strict=True))
    return [name, *(values[each] for each in SHOWN), ", ".join(filter(None, (by, date)))]


if __name__ == "__main__":
    sys.exit(main())
