"""The page of the first two sections of plan-0.4: how much BOS makes a sink, and the search for a sink without BOS.

python scripts/bos_fraction.py    # docs/results/bos-fraction.md, its figure and its table, from the runs that are kept
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import queue_runs
import run_card
from matplotlib.figure import Figure
from named import Named
from run_measures import ALONE, LOSS, SEEDS, SINKING, SINKS, Entry, Measure, as_csv, of_row, rate, shown, values
from templates import given, page

from sinkjax.analysis.judgement import SMALL
from sinkjax.config_files.files import write
from sinkjax.report.markdown import table as markdown

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE, IMAGE, TABLE = (
    DOCS / name for name in ("results/bos-fraction.md", "images/bos-fraction.png", "results/data/bos-fraction.csv")
)
FRACTIONS = {"bos-0": "0%", "bos-10": "10%", "bos-50": "50%", "bos-90": "90%", "bos-100": "100%"}
ROWS = {**FRACTIONS, "offsets": "50%, at random offsets"}


def others_above_half(entry: Entry) -> float:
    """Share of the vocabulary without BOS whose tokens grow, alone, more than half of what BOS grows."""
    tokens = round(entry["card"]["bos"]["scan"]["above half"] * VOCABULARY)  # with BOS, whose ratio is 1
    return (tokens - 1) / (VOCABULARY - 1)


def transfer(kind: str) -> Callable[[Entry], float]:
    """Attention to key 1 with key 0 masked, over that to key 0 without an edit."""

    def of(entry: Entry) -> float:
        edits = entry["card"][kind]["edits"]
        return float(edits["mask 0"]["received"][1] / edits["none"]["received"][0])

    return of


def gain(entry: Entry) -> float:
    """What key 1 gains with key 0 masked, less what it gains with key 5 masked, over the attention to key 0 without an edit."""
    edits = entry["card"]["bos"]["edits"]
    return float((edits["mask 0"]["received"][1] - edits["mask 5"]["received"][1]) / edits["none"]["received"][0])


def right(entry: Entry) -> float:
    """Share of 64 isolated tokens whose sink the scan predicts."""
    both, predicted, measured, neither = token_by_token(entry)
    return (both + neither) / (both + predicted + measured + neither)


def counted(entry: Entry) -> str:
    """How many of 64 isolated tokens the scan predicts to become a sink, and how many do."""
    both, predicted, measured, _ = token_by_token(entry)
    return f"{both + predicted} predicted, {both + measured} measured"


def token_by_token(entry: Entry) -> list[int]:
    """How many of 64 isolated tokens are predicted and measured to sink, predicted only, measured only, and neither."""
    found: list[int] = entry["card"]["bos"]["token by token"]["predicted and measured, predicted only, measured only, neither"]
    return found


def side(entry: Entry) -> str:
    """The side that a model takes, by the plan's rule: "SmolLM2", "Gemma" or neither, which is ""."""
    if rate(entry, "plain") >= SINKS and others_above_half(entry) > 0.5 and transfer("plain")(entry) > 0.5:
        return "SmolLM2"
    return "Gemma" if others_above_half(entry) <= 0.01 and transfer("bos")(entry) < 0.1 else ""


VOCABULARY = queue_runs.plan()["base"]["vocabulary"]
RATES = (SINKING.name, "heads that sink without BOS in front")
MEASURES = (
    SINKING,
    Measure(RATES[1], lambda entry: rate(entry, "plain")),
    Measure("other tokens above half", others_above_half),
    ALONE,
    Measure("transfer", transfer("bos")),
    Measure("transfer without BOS in front", transfer("plain")),
    Measure("gain of the next token", gain),
    Measure("right token by token", right),
    LOSS,
)


def main() -> None:
    """Write the page, its table and its figure."""
    kept = queue_runs.kept()
    rows = {row: of_row(kept, f"bos/{row}") for row in ROWS}
    write(TABLE, as_csv(rows, MEASURES))
    draw(rows).savefig(IMAGE, dpi=150)
    earlier = Named()("pretraining-340k; page; heads; value; .0f%")
    write(PAGE, page("bos-fraction.md", given(numbers(rows, kept) | {"earlier": earlier} | gemma())))
    print(PAGE)


BY_NAME = {measure.name: measure for measure in MEASURES}


def numbers(rows: dict[str, list[Entry]], kept: queue_runs.Kept) -> dict[str, object]:
    """What the template names."""
    lines = [
        [f"{label} ({len(rows[row])})", *(shown(values(rows[row], BY_NAME[name]), BY_NAME[name]) for name in FEATURED)]
        for row, label in ROWS.items()
    ]
    found = {f"{row}/{one.name}": shown(values(own, one), one) for row, own in rows.items() for one in MEASURES}
    return {
        **found,
        **{f"sinking/{row}": sum(rate(entry) >= SINKS for entry in own) for row, own in rows.items()},
        **searched(kept),
        "table": markdown(["BOS first in (seeds)", *FEATURED.values()], lines),
        "runs": f"{sum(map(len, rows.values()))} of {SEEDS * len(rows)}",
        "resembling": sum(gain(entry) < SMALL and others_above_half(entry) <= 0.01 for entry in rows["bos-100"]),
        "predicted": "; ".join(sorted({counted(entry) for own in rows.values() for entry in own if rate(entry) >= SINKS})),
        **sides([entry for own in rows.values() for entry in own]),
        **{f"prediction {number}": word for number, word in enumerate(predictions(rows), 1)},
    }


def gemma() -> dict[str, object]:
    """What the token after a hidden `<bos>` has in Gemma, as a level and as the gain that Findings judges."""
    named, layer = Named(), "in layer 8, mean over heads (%)"
    hidden, seen = (
        float(named(f"kiya/mask[{edit}][attention to key {key} {layer}]@gemma"))
        for edit, key in (("all layers", 1), ("no edit", 0))
    )
    return {"gemma/level": f"{100 * hidden / seen:.0f}%", "gemma/gain": named("kiya/mask.all@gemma=absent")}


def sides(entries: Sequence[Entry]) -> dict[str, object]:
    """How many models take each side."""
    found = [side(entry) for entry in entries]
    return {"models": len(found), **{f"sides/{name}": found.count(name) or "none" for name in ("SmolLM2", "Gemma")}}


FEATURED = {
    SINKING.name: "heads that sink on it",
    "other tokens above half": "other tokens that alone reach over half of its activation",
    ALONE.name: "its activation alone",
}


EVEN = 0.0005  # of mean attention to the first token: a head that is this near to even attention attends evenly

NOT_GROWN = """ That is below the 5% that the plan asks for, so the models planned on this setting are not trained. Mean
attention ranked the 16, and it favours heads that attend evenly: {} to {} of the setting's {} heads do, so its 8
seeds add little."""


def searched(kept: queue_runs.Kept) -> dict[str, object]:
    """The search for a sink without BOS: its largest sink rate, and the rate of the setting that it chose, if that is trained."""
    tried = [entry for (name, _), entry in kept.items() if name.startswith("search/")]
    best = max(tried, key=lambda entry: entry["end"]["sink"][0])
    setting = of_row(kept, "gu/base")
    base = [entry["end"]["sink"][0] for entry in setting]
    even = float(np.mean(1 / np.arange(1, run_card.LENGTH + 1)))  # of each query to all keys that it sees
    not_grown = len(base) == SEEDS and float(np.mean(base)) < queue_runs.GROWN
    evenly = [int(np.sum(np.abs(np.array(entry["end"]["received"]) - even) < EVEN)) for entry in setting]
    return {
        "tried": len(tried),
        "search/largest": f"{100 * best['end']['sink'][0]:.1f}%",
        "search/attention": f"{max(float(np.mean(entry['end']['received'])) for entry in tried):.3f}",
        "search/even": f"{even:.3f}",
        "base/seeds": len(base),
        "base/rate": f"{100 * float(np.mean(base)):.1f}%" if base else "not trained yet",
        "base/follows": NOT_GROWN.format(min(evenly), max(evenly), np.size(setting[0]["end"]["received"])) if not_grown else "",
    }


def predictions(rows: dict[str, list[Entry]]) -> list[str]:
    """The word of each of the plan's predictions: a row is judged with all of its seeds."""

    def mean(row: str, name: str) -> float:
        return float(np.mean(values(rows[row], BY_NAME[name])))

    def word(needed: Sequence[str], holds: Callable[[], bool]) -> str:
        fewest = min(len(rows[row]) for row in needed)
        if fewest < SEEDS:
            return f"open ({fewest} of {SEEDS} seeds)"
        return "holds" if holds() else "does not hold"

    often, mixed = ("bos-100", "bos-90"), ("bos-10", "bos-50")
    sinking = [row for row in ROWS if rows[row] and mean(row, "heads that sink") >= SINKS]

    def specific(row: str) -> bool:
        return mean(row, "other tokens above half") <= 0.01 and mean(row, "transfer") < 0.1

    def two_ways() -> bool:
        return all(specific(row) and mean(row, "heads that sink without BOS in front") < SINKS for row in mixed if row in sinking)

    without = [row for row in mixed if len(rows[row]) == SEEDS and row not in sinking]
    return [
        word(often, lambda: all(map(specific, often))),
        "not applicable, since neither grows a sink" if len(without) == len(mixed) else word(mixed, two_ways),
        word(("bos-0",), lambda: all(mean("bos-0", name) < SINKS for name in RATES)),
        word(("bos-50", "offsets"), lambda: ("bos-50" in sinking) == ("offsets" in sinking)),
        word(tuple(ROWS), lambda: all(right(entry) >= 0.95 for own in rows.values() for entry in own if rate(entry) >= SINKS)),
    ]


def draw(rows: dict[str, list[Entry]]) -> Figure:
    """Heads that sink on BOS, and tokens that are like it when they are alone, by the share of blocks that begin with BOS."""
    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    ax = figure.subplots()
    for name, label, color in (
        ("heads that sink", "heads that sink on BOS", "C0"),
        ("other tokens above half", "other tokens that alone reach over half of its activation", "C1"),
    ):
        taken = [100 * np.array(values(rows[row], BY_NAME[name])) for row in FRACTIONS]
        ax.plot(range(len(taken)), [each.mean() for each in taken], color=color, label=label, linewidth=1.8)
        for place, each in enumerate(taken):
            ax.plot(np.full(len(each), place), each, "o", color=color, markersize=4, alpha=0.6)
    ax.set_xticks(range(len(FRACTIONS)), FRACTIONS.values())
    ax.set_xlabel("training blocks that begin with BOS")
    ax.set_ylabel("share (%)")
    ax.set_ylim(-3, 103)
    ax.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper left", frameon=False)
    return figure


if __name__ == "__main__":
    main()
