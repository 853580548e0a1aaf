"""The page of the third section of plan-0.4: optimisers and norms, each at its own best rate.

python scripts/rates.py    # docs/results/rates.md, its figure and its table, from the runs that are kept
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import queue_runs
from long_tables import as_text
from matplotlib.figure import Figure
from run_measures import ATTENTION, LOSS, SEEDS, SINKING, SINKS, Entry, Measure, shown, values
from templates import given, page

from sinkjax.analysis.evidence import Evidence, Judgement
from sinkjax.analysis.judgement import judge, not_applicable
from sinkjax.config_files.files import write
from sinkjax.report.markdown import table as markdown
from sinkjax.train.config import DIVERGED

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE, IMAGE, TABLE = (DOCS / name for name in ("results/rates.md", "images/rates.png", "results/data/rates.csv"))
PLAIN = "adamw"
ROWS = {
    PLAIN: "AdamW",
    "muon": "Muon",
    "sgd": "SGD with momentum",
    "sandwich": "sandwich norm",
    "qk-norm": "QK-norm",
    "tanh": "DynamicTanh",
}
MEASURES = (LOSS, ATTENTION, SINKING)
ORDER = (PLAIN, "muon", "qk-norm", "sandwich", "sgd", "tanh")  # of the sinks, as the plan predicts it
UNTUNED = "attention to token 1"
OURS = {"replicates": "confirmed"}  # the statement is ours, no paper's
FAR = 3.2  # nats: rows above it have a panel of their own
Tried = dict[str, dict[str, list[Entry]]]  # runs by row and rate


def main() -> None:
    """Write the page, its table and its figure."""
    kept = queue_runs.kept()
    tried, best = rates(kept), at_best(kept)
    write(TABLE, as_csv(tried, best))
    draw(tried).savefig(IMAGE, dpi=150)
    write(PAGE, page("rates.md", given(numbers(tried, best))))
    print(PAGE)


def numbers(tried: Tried, best: Mapping[str, Sequence[Entry]]) -> dict[str, object]:
    """What the template names."""
    ended = [entry for row in tried.values() for own in row.values() for entry in own]
    return {
        "tried": len(ended),
        "planned": sum(len(row) for row in tried.values()) * len(queue_runs.RATE_SEEDS),
        "best": sum(map(len, best.values())),
        "best planned": SEEDS * len(ROWS),
        "table": judged_table(best, tried) or tried_table(tried),
        **{
            f"{row}/{one.name}": ", ".join(cell(each, one) for each in own.values())
            for row, own in tried.items()
            for one in MEASURES
        },
        **{f"best {row}/{one.name}": cell(own, one) for row, own in best.items() for one in MEASURES},
        "with a sink": sum(share >= SINKS for share in values([entry for entry in best[PLAIN] if entry["card"]], SINKING)),
        **predicted(best),
    }


def rates(kept: queue_runs.Kept) -> Tried:
    """The runs that choose a rate."""
    return {
        row: {
            f"{value:g}": [entry for (name, _), entry in sorted(kept.items()) if name == f"chance/{row}@{value:g}"]
            for value in queue_runs.plan()["chance"][row]["rates"]
        }
        for row in ROWS
    }


def tried_table(tried: Tried) -> str:
    """A line for each row: means at each of its rates, in their order."""
    lines = [
        [f"{ROWS[name]}: {', '.join(row)}", *(", ".join(cell(own, one) for own in row.values()) for one in MEASURES)]
        for name, row in tried.items()
    ]
    return markdown(["row: its rates", *(one.name for one in MEASURES)], lines)


def cell(own: Sequence[Entry], measure: Measure) -> str:
    """A mean over the runs that did not diverge."""
    ended = [entry for entry in own if entry["outcome"] != DIVERGED]
    lost = len(own) - len(ended)
    mean = shown(values(ended, measure), measure) if ended else ""
    return " ".join(filter(None, (mean, f"({lost} diverged)" if lost else ""))) or "-"


def draw(tried: Tried) -> Figure:
    """Mean loss and attention to BOS of each row at each rate, joined by a line; the filled dot has the lowest loss."""
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    near, far = figure.subplots(1, 2, sharey=True, width_ratios=(5, 1))
    for number, (row, own) in enumerate(tried.items()):
        ended = {rate: [entry for entry in entries if entry["outcome"] != DIVERGED] for rate, entries in own.items()}
        places = {
            rate: [np.mean(values(entries, one)) for one in (LOSS, ATTENTION)] for rate, entries in ended.items() if entries
        }
        x, y = np.array([*places.values()]).T
        ax, color, best = far if x.min() > FAR else near, f"C{number}", x.argmin()
        ax.plot(x, y, "o-", color=color, markerfacecolor="white", linewidth=1.4, label=ROWS[row])
        ax.plot(x[best], y[best], "o", color=color)
        for rate, place in places.items():
            ax.annotate(rate, place, (4, 4), textcoords="offset points", fontsize=8, color=color)
    near.set_ylim(0)
    near.set_ylabel("attention to BOS")
    figure.supxlabel("loss (nats per token)", fontsize="medium")
    for ax in (near, far):
        ax.spines[["top", "right"]].set_visible(False)
        ax.margins(x=0.15)
    figure.legend(loc="outside upper left", ncols=3, frameon=False)
    return figure


def predicted(best: Mapping[str, Sequence[Entry]]) -> dict[str, str]:
    """Words of the predictions: attention to BOS falls in an order, and AdamW leads by less than at one untuned rate."""
    if not complete(best):
        return dict.fromkeys(("order", "smaller"), "open")
    now, before = {row: float(np.mean(values(best[row], ATTENTION))) for row in ORDER}, earlier()
    smaller = all(now[PLAIN] - now[row] < before[PLAIN] - before[row] for row in ORDER[1:])
    held = {"order": sorted(now, key=lambda row: -now[row]) == [*ORDER], "smaller": smaller}
    return {name: "holds" if word else "does not hold" for name, word in held.items()}


def earlier() -> dict[str, float]:
    """Attention to the first token at one untuned rate, by row."""
    labels = {label: row for row, label in ROWS.items()} | {"AdamW, pre-norm": PLAIN}
    with (DOCS / "results/data/while-it-learns.csv").open(encoding="utf-8") as file:
        found = [row for row in csv.DictReader(file) if (row["table"], row["column"]) == ("table optimisers", UNTUNED)]
    return {labels[row["row"]]: float(row["mean"]) for row in found if row["row"] in labels}


def complete(best: Mapping[str, Sequence[Entry]]) -> bool:
    """Whether every row has all of its seeds at its best rate."""
    return best.keys() == ROWS.keys() and all(len(own) == SEEDS for own in best.values())


def judged_table(best: Mapping[str, Sequence[Entry]], tried: Tried) -> str:
    """A line for each row at its best rate, with its word; nothing before every row has all seeds."""
    if not complete(best):
        return ""
    words = {row: word(row, best, tried) for row in ROWS if row != PLAIN}
    lines = [
        [f"{label}: {rate_of(best[row])}", *(cell(best[row], one) for one in (ATTENTION, LOSS)), words.get(row, "-")]
        for row, label in ROWS.items()
    ]
    return markdown(["row: its best rate", "attention to BOS", "loss", "word"], lines)


def word(row: str, best: Mapping[str, Sequence[Entry]], tried: Tried) -> str:
    """The word of a row; "described" if another rate of AdamW's, with as low a loss, turns the comparison round."""
    found = judged(best[row], best[PLAIN]).word
    own, plain = (float(np.mean(values(best[name], ATTENTION))) for name in (row, PLAIN))
    turned = [(other - own) * (plain - own) < 0 for other in as_good(tried[PLAIN])]
    return "described" if found in ("replicates", "opposite") and any(turned) else OURS.get(found, found)


def as_good(row: Mapping[str, Sequence[Entry]]) -> list[float]:
    """Mean attention to BOS at each rate whose mean loss is within a standard deviation over seeds of the lowest."""
    losses = {rate: np.asarray(values(entries, LOSS)) for rate, entries in row.items() if entries}
    lowest = min(losses.values(), key=np.mean)
    near = [rate for rate, own in losses.items() if own.mean() - lowest.mean() <= max(lowest.std(ddof=1), own.std(ddof=1))]
    return [float(np.mean(values(row[rate], ATTENTION))) for rate in near]


def rate_of(entries: Sequence[Entry]) -> str:
    """The rate of a row."""
    fields = queue_runs.plan()["base"] | entries[0]["fields"]
    return f"{fields['learning_rates'][0]:g}"


def at_best(kept: queue_runs.Kept) -> dict[str, list[Entry]]:
    """The runs at the best rates, by row. One may be a run of another row with the same settings."""
    found: dict[str, list[Entry]] = {}
    for run in queue_runs.best_rates(list(queue_runs.tried_rates(queue_runs.plan()["chance"])), kept):
        same = [entry for entry in kept.values() if entry["seed"] == run.seed and entry["fields"] == dict(run.fields)]
        found.setdefault(run.row.removeprefix("chance/"), []).extend(same[:1])
    return found


def judged(own: Sequence[Entry], plain: Sequence[Entry]) -> Judgement:
    """The statement that a row gives BOS less attention than AdamW does, paired by seed; a diverged run does not count.

    Its premise is that AdamW has a sink.
    """
    if np.mean(values([entry for entry in plain if entry["card"]], SINKING)) < SINKS:
        return not_applicable("AdamW has no sink at its best rate.")

    def by_seed(entries: Sequence[Entry]) -> Any:
        found = {entry["seed"]: np.nan if entry["outcome"] == DIVERGED else ATTENTION.of(entry) for entry in entries}
        return np.array([found[seed] for seed in queue_runs.SEEDS])

    whole = by_seed(plain)
    return judge(Evidence(whole - by_seed(own), whole=whole, range=(0, 1), samples="seeds"))


def as_csv(tried: Tried, best: Mapping[str, Sequence[Entry]]) -> str:
    """Every measure of every run; nothing where it diverged."""
    runs = [(row, rate, entry) for row, own in tried.items() for rate, entries in own.items() for entry in entries]
    runs += [(row, rate_of(entries), entry) for row, entries in best.items() for entry in entries]

    def line(row: str, rate: str, entry: Entry) -> list[object]:
        numbers = [f"{one.of(entry):.4g}" if entry["card"] else "" for one in MEASURES]
        return [row, rate, entry["seed"], entry["outcome"], *numbers]

    return as_text(("row", "rate", "seed", "outcome", *(one.name for one in MEASURES)), (line(*run) for run in runs))


if __name__ == "__main__":
    main()
