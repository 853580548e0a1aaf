"""The page of the fourth section of plan-0.4: do gates turn sinks that do nothing into sinks that broadcast?

python scripts/gates.py    # docs/results/gates.md and its table, from the runs that are kept
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import queue_runs
import run_card
from run_measures import ALONE, ATTENTION, LOSS, SEEDS, SINKING, Entry, Measure, as_csv, of_row, shown, values
from templates import given, page

from sinkjax.analysis import intervals, kinds
from sinkjax.analysis.judgement import SMALL
from sinkjax.config_files.files import write
from sinkjax.report.markdown import table as markdown

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE, TABLE = DOCS / "results/gates.md", DOCS / "results/data/gates.csv"
BASELINE = "bos/bos-100"
GATES = {BASELINE: "no gate", "gates/element": "gates on elements", "gates/head": "gates on heads"}


def less_null(kind: str) -> Callable[[Entry], float]:
    """Share of heads and blocks with a sink of a kind, less the share with values in a random order."""

    def of(entry: Entry) -> float:
        found = entry["card"]["bos"]["kinds"]
        return float(found["sinks"][kind] - found["null"][kind])

    return of


def events(entry: Entry) -> float:
    """Share of heads and blocks with a sink of any kind."""
    found = entry["card"]["bos"]["kinds"]["sinks"]
    return float(sum(found[kind] for kind in ("no-op", "broadcast", "neither")))


def with_value(fits: Callable[[Any], Any]) -> Callable[[Entry], float]:
    """Share of heads whose mean attention to BOS is above 0.3 and whose value there, over the others', fits."""

    def of(entry: Entry) -> float:
        received, ratio = (np.array(entry["card"]["bos"][name]) for name in ("received", "value ratio"))
        return float(np.mean((received > run_card.EPS) & fits(ratio)))

    return of


BROADCAST = Measure("broadcast sinks, less their null", less_null("broadcast"))
MEASURES = (
    SINKING,
    Measure("give BOS over 0.3, value small", with_value(lambda ratio: ratio <= kinds.NO_OP)),
    Measure("give BOS over 0.3, value between", with_value(lambda ratio: (ratio > kinds.NO_OP) & (ratio < kinds.BROADCAST))),
    Measure("give BOS over 0.3, value large", with_value(lambda ratio: ratio >= kinds.BROADCAST)),
    Measure("no-op sinks, less their null", less_null("no-op")),
    BROADCAST,
    ATTENTION,
    ALONE,
    LOSS,
)


def main() -> None:
    """Write the page and its table."""
    rows = {label: of_row(queue_runs.kept(), row) for row, label in GATES.items()}
    write(TABLE, as_csv(rows, MEASURES))
    write(PAGE, page("gates.md", given(numbers(rows))))
    print(PAGE)


def numbers(rows: Mapping[str, Sequence[Entry]]) -> dict[str, object]:
    """What the template names."""
    lines = [[one.name, *(shown(values(own, one), one) for own in rows.values())] for one in MEASURES]
    return {
        **{f"{label}/{one.name}": shown(values(own, one), one) for label, own in rows.items() for one in MEASURES},
        "table": markdown(["share of heads, or number", *(f"{label} ({len(own)})" for label, own in rows.items())], lines),
        "events": f"{100 * max(map(events, itertools.chain(*rows.values()))):.1f}%",
        "prediction": prediction(rows),
    }


def prediction(rows: Mapping[str, Sequence[Entry]]) -> str:
    """Whether gates leave the share of broadcast sinks, less its null, within a tenth of all heads, paired by seed."""
    base, *gated = rows.values()
    fewest = min(map(len, rows.values()))
    if fewest < SEEDS:
        return f"open ({fewest} of {SEEDS} seeds)"
    ends = []
    for own in gated:
        rise = np.array(values(own, BROADCAST)) - np.array(values(base, BROADCAST))
        found = intervals.interval(rise)
        ends.append((float(rise.mean()),) * 2 if found.low is None or found.high is None else (found.low, found.high))
    if all(high < SMALL for _, high in ends):
        return "holds"
    return "does not hold" if any(low > SMALL for low, _ in ends) else "undecided"


if __name__ == "__main__":
    main()
