"""Draw the figure of docs/results/benchmarks.md, from the numbers in docs/results/data/benchmarks.csv.

python scripts/benchmarks_figure.py
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from measured import FULL
from named import DOCS, Row, read

from sinkjax.config_files.files import write
from sinkjax.report.figures.style import canvas, form, logarithmic, render, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

IMAGE = DOCS / "images" / "benchmarks.svg"
# The label of a row -> its section without the machine, and its measure.
SHOWN = {
    "one forward,\ntransformers": ("bench_sweep", "one forward, transformers"),
    "a sweep of 30 edits,\ntransformers": ("bench_sweep", "the sweep, transformers"),
    "a sweep of 30 edits,\nTransformerLens": ("bench_sweep", "the sweep, TransformerLens"),
    "training, 1.4 million\nparameters, PyTorch": ("bench_train", "mini, sinkjax"),
    "the same, a seed\nfor each core": ("bench_train", "mini, sinkjax, a seed for each core"),
    "training, 62 million\nparameters, PyTorch": ("bench_train", "60m, sinkjax"),
    "trigger task, one layer,\nPyTorch": ("bench_trigger", "1 x 1, softmax, PyTorch, batches at once"),
    "a sweep on a GPU,\ntransformers": ("bench_accelerator", "mask sweep, transformers"),
}


@styled
def drawn(rows: Sequence[Row]) -> Figure:
    """Draw how many times as fast as its peer sinkjax is in each row, by device, with goals and bounds."""
    found = {(label, row["device"]): row for label, shown in SHOWN.items() for row in rows if is_shown(row, *shown)}
    labels = [label for label in SHOWN if any(name == label for name, _ in found)]
    devices = sorted({device for _, device in found})
    figure = canvas(5.6, 0.55 * len(labels) + 1.3)
    panel = figure.add_subplot()
    for place, label in enumerate(labels):
        here = [(device, found[label, device]) for device in devices if (label, device) in found]
        for number, (device, row) in enumerate(here):
            height = place + 0.24 * (number - (len(here) - 1) / 2)
            point(panel, row, height, devices.index(device))
        if goal := next((float(row["goal"].split()[-1]) for _, row in here if row["goal"]), None):
            panel.plot([goal] * 2, [place - 0.38, place + 0.38], color="black", linewidth=1.5)
    for number, device in enumerate(devices):
        panel.plot([], [], *form(number)[1:], color=form(number)[0], markersize=7, label=device)
    panel.plot([], [], "o", color="#777777", markersize=7, markerfacecolor="white", label="bound of its products")
    panel.plot([], [], "|", color="black", markersize=11, markeredgewidth=1.5, label="goal")
    panel.axvline(1, color="#bbbbbb", linewidth=0.8, zorder=0)
    panel.set(yticks=range(len(labels)), ylim=(len(labels) - 0.45, -0.55), xlim=(0.45, 6))
    panel.set_yticklabels(labels, fontsize=11)
    logarithmic(panel, "x")
    panel.tick_params(axis="x", labelsize=11)
    panel.set_xlabel("times as fast as the peer", fontsize=12)
    figure.legend(loc="outside upper center", ncols=2, fontsize=11)
    return figure


def point(panel: Axes, row: Row, height: float, number: int) -> None:
    """Draw a ratio, its range over rounds, and its bound."""
    colour, marker = form(number)
    value = float(row["value"])
    if row["low"]:
        panel.plot([float(row["low"]), float(row["high"])], [height] * 2, color=colour)
    if row["bound"]:
        panel.plot(float(row["bound"]), height, marker, color=colour, markersize=6, markerfacecolor="white")
    panel.plot(value, height, marker, color=colour, markersize=6)


def is_shown(row: Row, section: str, measure: str) -> bool:
    """Whether a number belongs to a row: each machine has its own section, whose name begins with the script's."""
    return row["section"].startswith(section) and row["measure"] == measure


if __name__ == "__main__":
    write(IMAGE, render(drawn(read(FULL.parent / "data" / "benchmarks.csv")), "svg"))
