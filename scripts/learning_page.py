"""Write docs/while-it-learns.md and its figure from the kept logs of the baseline and of the tables of docs/pretraining-plan.md.

    python scripts/learning_page.py      half a minute; nothing is trained

The page has the order in which a sink's parts come about, and a table for each study of edits, releases and optimisers.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import xarray
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pretrain_page import IMAGES, ROOT, first_share, judged, kept, machines, shown, spike, tables, words
from pretrain_runs import BASELINE, LEARNING, home_of, kept_as, learning, learning_rows
from pretrain_tables import fill
from sections import markdown

from sinkjax.analysis import intervals
from sinkjax.papers.emergence._onsets import halfway, in_order

PAGE = ROOT / "docs" / "while-it-learns.md"
IMAGE = "while-it-learns-order.png"
# The row that others are compared with, where a loaded model is trained and not the baseline.
PLAIN = {"released": "released/plain", "chats": "chats/softmax", "smollm2": "smollm2/plain"}

HEAD = """How a sink develops while a model learns: the order in which its parts appear, what happens when the first key is
hidden for a time, and which optimisers and norms grow a sink without a massive activation. Measures and intervals are as in
[Gu et al.'s tables in a small model](pretraining-340k.md); *minus baseline* compares the same seeds, so it can differ from the
difference of the means; a row with fewer than 8 seeds is described, not judged.
`scripts/learning_page.py` makes this page from the logs in `docs/pretraining-logs`; the [plan](pretraining-plan.md) was written
before the runs."""
STATE = """{kept} of the {planned} planned trainings have run (`scripts/pretrain_runs.py learning`), on {machines}. A table
appears here once one of its rows has run, and the row that it is compared with."""
ORDER = """In the baseline's {seeds} seeds, each quantity moves from its value at the first step to its value at the last. The
table shows the step from which it stays beyond halfway (for ratios, halfway in logarithms), and how much later that is than the
line above, paired by seed. Evaluations are {apart} steps apart."""
EARLY = """Values begin to shrink long before the sink appears: measured without the logarithm, half of the change is made by
step {steps}."""
ABOUT = {
    "released": """The model is `mini-sink` (1.4 million parameters), selected for its sink; runs differ only in the order of
the text. The edits end halfway through training. In the table above, the baseline is the model that continues unedited.""",
    "chats": """The models are `mini-softmax` and `mini-sigmoid`, two packaged models of one seed; runs differ only in the order
of the text, 120 conversations written for this project (Gu et al. use UltraChat-200k, which cannot be packaged), a fifth of them
held out. In the table above, the baseline is the model with softmax, and the loss is that of the conversations.""",
    "smollm2": """The model is SmolLM2-135M (Instruct, 4-bit weights), at a learning rate of 1e-4, on 512 tokens of novels a step;
one run of each, described. The edits end halfway, at step 50. In the table above, the baseline is the model that continues
unedited.""",
}
CAPTION = """*The step from which each quantity stays beyond half of its change in training. Points: seeds; bars: mean and 95%
interval over seeds.*"""


def events(data: xarray.Dataset) -> dict[str, NDArray]:
    """The step of each event in each run, in order: float[run], NaN for a run that swings back at the end."""
    quantities = {
        "held-out loss": -data["loss"].values,
        "attention to the first token": first_share(data),
        "largest activation over the median": np.log(spike(data)),
        "norm of the first token over others'": np.log(data["norm_ratio"].max("depth").values),
        "norm of the first token's value over others'": -np.log(data["value_ratio"].min("layer").values),
    }
    return in_order(data["step"].values, quantities)


def order(data: xarray.Dataset) -> list[str]:
    """A sentence and a table: the events with their intervals, and how far neighbours are apart."""
    found = events(data)
    lines = [[name, shown(steps, 0), ""] for name, steps in found.items()]
    for line, (before, after) in zip(lines[1:], itertools.pairwise(found.values()), strict=True):
        line[2] = shown(after - before, 0)
    apart = int(data["step"].values[0, 1] - data["step"].values[0, 0])
    drained = halfway(data["step"].values, -data["value_ratio"].min("layer").values)
    text = fill(ORDER.format(seeds=data.sizes["run"], apart=apart))
    return [text, markdown(["quantity", "step", "later by"], lines), fill(EARLY.format(steps=shown(drained, 0)))]


def course(data: Mapping[str, xarray.Dataset], study: str) -> list[str]:
    """Attention, activation and loss of a study's fine-tuned models at the beginning, halfway and at the end, if any has run."""
    lines = []
    for row, own in data.items():
        if row.startswith(f"{study}/"):
            steps = own["step"].values[0]
            places = [0, int(np.abs(steps - np.nanmax(steps) / 2).argmin()), int(np.nanargmax(steps))]
            quantities = {"attention": (first_share(own), 3), "spike": (spike(own), 0), "loss": (own["loss"].values, 3)}
            for name, (values, digits) in quantities.items():
                lines.append([row.partition("/")[2], name, *(shown(values[:, place], digits) for place in places)])
    return [fill(ABOUT[study]), markdown(["row", "", "at the beginning", "halfway", "at the end"], lines)] if lines else []


def draw(data: xarray.Dataset, file: Path) -> None:
    """The events on a line of time."""
    found = events(data)
    figure = Figure(figsize=(8, 2.6), layout="constrained")
    ax = figure.subplots()
    for place, steps in enumerate(found.values()):
        interval = intervals.interval(steps)
        ax.scatter(steps, np.full(len(steps), place), s=14, color="C0", alpha=0.35, linewidth=0)
        if interval.low is not None:
            ax.plot([interval.low, interval.high], [place, place], color="C0", linewidth=2)
        ax.scatter(interval.mean, place, marker="|", s=140, color="black", zorder=3)
    ax.set_yticks(range(len(found)), list(found))
    ax.set_ylim(len(found) - 0.5, -0.5)
    ax.set_xlim(0, float(np.nanmax(data["step"].values)))
    ax.set_xlabel("training step", fontsize=9)
    ax.tick_params(labelsize=8)
    ax.grid(axis="x", color="0.92")
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=150)


def page(data: Mapping[str, xarray.Dataset]) -> str:
    """The page, in Markdown."""
    runs = [home_of(kept_as(row), seed) for row, seed in learning()]
    state = STATE.format(kept=sum(home.exists() for home in runs), planned=len(runs), machines=machines(learning()))
    parts = ["# While it learns", fill(HEAD), fill(state), "## Order of events", *order(data[BASELINE])]
    parts += [f"![When each part of a sink comes about](images/{IMAGE})", fill(CAPTION)]
    verdicts = judged(data, learning_rows())
    for study in LEARNING:
        own = {row: values for row, values in data.items() if row == BASELINE or row.startswith(f"{study}/")}
        rows = [row for row in learning_rows() if row.startswith(f"{study}/")]
        parts += [text.replace("### ", "## ", 1) for text in tables(own, rows, PLAIN.get(study, BASELINE), verdicts)]
        if study in PLAIN:
            parts += course(own, study)
    claims = words(itertools.chain(*verdicts.values()))
    if claims:
        parts += ["## Claims", "By the [one rule](judgements.md), of rows with 8 seeds.", claims]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Read the kept logs, write the page and draw its figure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=PAGE, help="the page to write")
    parser.add_argument("--images", type=Path, default=IMAGES, help="the folder of its figure")
    options = parser.parse_args()
    data = kept([BASELINE, *learning_rows()])
    options.images.mkdir(parents=True, exist_ok=True)
    draw(data[BASELINE], options.images / IMAGE)
    options.out.write_text(page(data), encoding="utf-8")
    print(options.out)


if __name__ == "__main__":
    main()
