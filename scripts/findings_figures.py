"""Keep what runs of kiya/scan found in docs/results/data/scan, and draw figures of docs/results from the tables there.

    python scripts/findings_figures.py smollm2-135m=RUN gemma3-270m=RUN      each given model's scan is read again
    python scripts/findings_figures.py                                       the figures only

`models.csv` has one row for each model and untrained twin, which pages name (scripts/named.py), `sizes.csv` their tokens by size,
and `exceptions.csv` the tokens that differ from most. The figures of the finished plans (pretrain-340k-losses.png,
while-it-learns-optimisers.png) were drawn by this script at commit bcea367d.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from long_tables import as_text
from named import DOCS, GEMMA, SMOL, SUMMARY, Row, read, summaries

from sinkjax.checkpoints.load import open_checkpoint
from sinkjax.config_files.files import user_location, write
from sinkjax.papers.kiya.scan import HALF, compared
from sinkjax.report.figures.style import COLOURS, render, styled
from sinkjax.study.folder import open_store, store_path

if TYPE_CHECKING:
    import xarray
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DATA, IMAGES = DOCS / "results/data/scan", DOCS / "images"
UPTO = re.compile(r"layers 0 to \d+")
NAMES = {"smollm2-135m": "SmolLM2-135M-Instruct", "gemma3-270m": "Gemma 3 270M"}
COLUMNS = {
    "models": (
        *("model", "vocabulary", "tokens", "special", "ordinary", "sinks", "none", "layer"),
        *("first", "other", "lowest", "median", "highest", "cosine", "nearest"),
    ),
    "sizes": ("model", "low", "high", "tokens"),
    "exceptions": ("model", "token", "text", "ratio", "cosine"),
}
EDGES = np.geomspace(1e-4, 2, 61)  # of the sizes over the first token's
MOST = 40  # exceptions that are kept


def rows_of(model: str, data: xarray.Dataset, vocabulary: int) -> dict[str, list[Sequence[object]]]:
    """Return a model's rows of the three tables. vocabulary: the number of tokens that it has, run or not."""
    found, special = compared(data), data["special"].values
    layer, few = found.layer, found.makes.mean() <= HALF
    first, other = (float(data[name][layer]) for name in ("first_largest", "other_largest"))
    ends = [f"{np.percentile(found.ratio, one):.4g}" for one in (0.1, 50, 99.9)]
    cosine = float(np.median(found.cosine[found.makes == (not few)]))
    counts, _ = np.histogram(found.ratio.clip(EDGES[0], EDGES[-1]), EDGES)
    odd = np.flatnonzero(found.makes == few)
    odd = odd[np.argsort(found.ratio[odd] * (-1 if few else 1), kind="stable")][:MOST]
    texts = data["text"].values if "text" in data.coords else [""] * len(found.ratio)
    nearest = found.ratio[~found.makes].max(initial=0) if few else found.ratio[found.makes].min()  # of most tokens, to the line
    counted = (len(special), int(special.sum()), int((~special).sum()), int(found.makes.sum()), int((~found.makes).sum()), layer)
    bins = [one for one in zip(EDGES, EDGES[1:], counts, strict=False) if one[2]]
    facts = [(data["token"].values[one], texts[one], found.ratio[one], found.cosine[one]) for one in odd]
    return {
        "models": [(model, vocabulary, *counted, f"{first:.6g}", f"{other:.6g}", *ends, f"{cosine:.4f}", round(100 * nearest))],
        "sizes": [(model, f"{low:.5g}", f"{high:.5g}", count) for low, high, count in bins],
        "exceptions": [(model, token, text, f"{ratio:.4g}", f"{cosine:.4f}") for token, text, ratio, cosine in facts],
    }


def keep(runs: Sequence[str], folder: Path = DATA) -> None:
    """Put the rows of runs, each "model=FOLDER", and of their untrained twins in place of the models' old ones."""
    for run in runs:
        model, _, place = run.partition("=")
        vocabulary = open_checkpoint(model).config.vocab_size
        for store, named in (("tokens", model), ("untrained", f"{model}-untrained")):
            if (found := store_path(user_location(Path(place)), store)).exists():
                made = rows_of(named, open_store(found).load(), vocabulary)
                for name, columns in COLUMNS.items():
                    put(folder / f"{name}.csv", columns, named, made[name])


def put(file: Path, columns: Sequence[str], model: str, made: Sequence[Sequence[object]]) -> None:
    """Put a model's rows of a table in place of its old ones."""
    others = [row for row in read(file) if row["model"] != model] if file.exists() else []
    write(file, as_text(columns, [*([row[column] for column in columns] for row in others), *made]))


def wide(columns: int, height: float = 3.5) -> tuple[Figure, Sequence[Axes]]:
    """Return a figure with panels side by side and letters that a talk can show."""
    import matplotlib
    from matplotlib.figure import Figure

    sizes = {"font.size": 12, "axes.titlesize": 13, "axes.labelsize": 12, "legend.fontsize": 12}
    matplotlib.rcParams.update(sizes | dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), 11))
    figure = Figure(figsize=(8.4, height), layout="constrained")
    return figure, figure.subplots(1, columns, sharey=True, squeeze=False)[0]


@styled
def scans(folder: Path = DATA) -> Figure:
    """Draw how many tokens have which largest activation alone, over that of the first token of texts, one panel a model."""
    models, sizes = (read(folder / f"{name}.csv") for name in ("models", "sizes"))
    named = {row["model"]: row for row in models}
    models_shown = [one for one in NAMES if one in named]
    figure, axes = wide(len(models_shown))
    for panel, model in zip(axes, models_shown, strict=True):
        scan(panel, named[model], [row for row in sizes if row["model"] == model])
    axes[0].set_ylabel("tokens")
    figure.supxlabel("largest activation alone, over that of a text's first token", fontsize=12)
    return figure


def scan(panel: Axes, about: Row, sizes: Sequence[Row]) -> None:
    """Draw one model: tokens above half of the first token's activation in another colour, and few of them with an arrow."""
    low, high, count = (np.array([float(row[name]) for row in sizes]) for name in ("low", "high", "tokens"))
    above = np.sqrt(low * high) > HALF
    for chosen, colour in ((~above, "#999999"), (above, COLOURS[1])):
        panel.bar(low[chosen], count[chosen], (high - low)[chosen], align="edge", color=colour)
    panel.set(xscale="log", yscale="log", ylim=(0.7, 6e4), xlim=(1e-3, 3))
    panel.axvline(HALF, color="black", linestyle=":", linewidth=1.2)
    sinks, tokens, vocabulary = (int(about[name]) for name in ("sinks", "tokens", "vocabulary"))
    ran = f"{tokens:,} tokens" if tokens == vocabulary else f"{tokens / vocabulary:.0%} of its tokens"
    panel.set_title(f"{NAMES[about['model']]}:\n{sinks:,} above half, of {ran}", loc="left", fontweight="bold")
    if sinks == 1:
        panel.annotate("<bos>", (1, 1), (1, 12), arrowprops={"arrowstyle": "->"}, ha="center")
    panel.set_xticks([0.001, 0.01, 0.1, 1], ["0.001", "0.01", "0.1", "1"])
    panel.set_yticks([1, 10, 100, 1000, 10000], ["1", "10", "100", "1,000", "10,000"])


@styled
def crossover(data: Path = DOCS / "results/data") -> Figure:
    """Draw the heads that sink on the first two keys while the first is masked in layers 0 to l, one panel a model."""
    figure, axes = wide(2, 3.8)
    for panel, condition in zip(axes, (SMOL, GEMMA), strict=True):
        rows = summaries(data / SUMMARY)["kiya/mask", condition]
        for key, colour in ((0, COLOURS[0]), (1, COLOURS[1])):
            of = {row["edit"]: row for row in rows if row["measure"] == f"heads that sink on key {key} (%)"}
            shown = {0: of["layer 0"]} | {int(name.split()[-1]): row for name, row in of.items() if UPTO.fullmatch(name)}
            shown[len(shown)] = of["all layers"]
            middle, low, high = ([float(row[name]) for row in shown.values()] for name in ("mean", "low", "high"))
            panel.plot([*shown], middle, color=colour, label=("first key", "second key")[key])
            panel.fill_between([*shown], low, high, color=colour, alpha=0.2, linewidth=0)
        panel.axhline(float(of0(rows)), color="black", linestyle="--", linewidth=1.2, label="first key, no mask")
        panel.set(ylim=(-2, 100), xlabel="first key masked in layers 0 to l", xticks=range(0, len(shown), 5))
        panel.set_title(NAMES[condition.model] + ", with <bos> first" * (condition.bos == "model"), loc="left", fontweight="bold")
    axes[0].set_ylabel("heads that sink (%)")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return figure


@styled
def timeline(file: Path = DOCS / "results/data/emergence/summary.csv") -> Figure:
    """Draw when each event of a training has happened. Names are above their points, so that a telephone shows both."""
    from matplotlib.figure import Figure

    measure = "step from which half of the change is made"
    rows = [row for row in read(file) if row["measure"] in (measure, f"{measure}, in logarithms") and row["mean"]]
    names = list(dict.fromkeys(row["model"] for row in rows if row["measure"] == measure))
    figure = Figure(figsize=(4.8, 5.2), layout="constrained")
    panel = figure.subplots()
    for kind, (label, colour, marker, below) in {
        measure: ("half of the change", COLOURS[0], "o", 0.0),
        f"{measure}, in logarithms": ("half in logarithms", COLOURS[1], "s", 0.22),
    }.items():
        shown = [(names.index(row["model"]) + below, row) for row in rows if row["measure"] == kind]
        places, middle = [place for place, _ in shown], [float(row["mean"]) for _, row in shown]
        panel.hlines(places, *([float(row[end]) for _, row in shown] for end in ("low", "high")), color=colour)
        panel.plot(middle, places, marker=marker, markersize=6, linestyle="none", color=colour, label=label)
    for place, name in enumerate(names):
        panel.text(0, place - 0.3, name, fontsize=10)
    panel.set(xlim=(-150, 6000), ylim=(len(names) - 0.4, -0.8), yticks=[], xlabel="training step")
    panel.spines["left"].set_visible(False)
    panel.set_xticks(range(0, 6001, 2000), [f"{step:,}" for step in range(0, 6001, 2000)])
    figure.legend(*panel.get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return figure


def of0(rows: Sequence[Row]) -> str:
    """The heads that sink on the first key without an edit."""
    return next(row["mean"] for row in rows if (row["edit"], row["measure"]) == ("no edit", "heads that sink on key 0 (%)"))


def main(arguments: Sequence[str]) -> None:
    """Keep the given runs, and draw."""
    keep(arguments)
    for name, draw in FIGURES.items():
        write(IMAGES / f"{name}.png", render(draw(), "png"))


FIGURES = {
    "scan": scans,
    "crossover": crossover,
    "emergence-timeline": timeline,
}

if __name__ == "__main__":
    main(sys.argv[1:])
