"""Write docs/while-it-learns.md and its figure from the kept logs of the baseline and of the tables of docs/pretraining-plan.md.

    python scripts/learning_page.py      half a minute; nothing is trained

The page has the order in which a sink's parts come about, and a table for each study of edits, releases and optimisers.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import xarray
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pretrain_page import (
    FEWEST,
    IMAGES,
    ROOT,
    emergence,
    first_share,
    is_baseline,
    judged,
    kept,
    machines,
    numbers,
    paired,
    shown,
    spike,
    tables,
    words,
)
from pretrain_runs import BASELINE, LEARNING, home_of, kept_as, learning, learning_rows, on_gpu
from pretrain_runs import HEAD as LEVEL
from pretrain_tables import fill
from sections import markdown, table_of

from sinkjax.analysis import intervals
from sinkjax.papers.emergence._onsets import in_order
from sinkjax.papers.pretrain._outcomes import at_end, end, sinks

PAGE = ROOT / "docs" / "while-it-learns.md"
IMAGE, COURSES, APART = (f"while-it-learns-{name}.png" for name in ("order", "courses", "optimisers"))
MEASURED, RETRAINED = "optimisers/adamw", "emergence/softmax"  # the baseline in its table, and its seeds 3 to 10 trained again
POST = "gu-norm/post"  # a row of the queue in which sink and activation come apart
LATE = 1000  # steps at the end in which attention may still rise
LOSS, ATTENTION = "held-out loss", "attention to the first token"
ACTIVATION, NORM = "largest activation over the median", "norm of the first token over others'"
VALUES = "norm of the first token's value over others'"
# The row that others are compared with, where a loaded model is trained and not the baseline.
PLAIN = {"released": "released/plain", "chats": "chats/softmax", "smollm2": "smollm2/plain"}

HEAD = """How a sink develops while a model learns: the order in which its parts appear, what happens when the first key is
hidden for a time, and which optimisers and norms grow a sink without a massive activation. Measures and intervals are as in
[Gu et al.'s tables in a small model](pretraining-340k.md); *minus baseline* compares the same seeds, so it can differ from the
difference of the means; a row with fewer than 8 seeds is described, not judged.
`scripts/learning_page.py` makes this page from the logs in `docs/pretraining-logs`; the [plan](pretraining-plan.md) was written
before the runs, except for the claims on kurtosis. In `released` and `chats`, seeds differ in the order of the text alone."""
STATE = """{kept} of the {planned} planned trainings have run (`scripts/pretrain_runs.py learning`), on {machines}. A table
appears here once one of its rows has run, and the row that it is compared with."""
ORDER = """In the baseline's {seeds} seeds, each quantity moves from its value at the first step to its value at the last. The
table shows the step from which it stays beyond halfway, and beyond halfway in logarithms, which is earlier for what rises and
later for what falls. Evaluations are {apart} steps apart."""
DEVICES = """These rows have runs on a GPU, in brackets their number: {listed}. Their baselines ran on a CPU. Every product is in
full float32 on both. One seed of each of these rows was repeated on a CPU: on the CPU, attention to the first token differs
by {first} in the mean of the {count} rows and by at most {largest} in one, the loss by {loss}, and the largest activation is
{low} to {high} times as large."""
KURTOSIS = """The papers on Muon (1818 with Adam) and on SGD and OrthoAdam (140) measure outliers by the excess kurtosis of
activations. In the baseline it is {base} (mean over tokens, in the layer where it is largest; seeds 3 to 10 trained again, since
the baseline's logs are older than the measure), so it has none of these papers' outliers, and the words on kurtosis are of
such a model. With Muon kurtosis is {muon}, while the spike over the median is smaller."""
LATER = """Attention to the first token comes {linear} steps after the {quantity}, or {logs} steps in logarithms: {word}."""
BELOW = "Differences are paired by seed; below 0, attention is first."
ABOUT = {
    "released": """The edits end halfway through training. In the table above, the baseline is the model that continues
unedited.""",
    "chats": """The baseline is the model with softmax, and the loss is measured on conversations.""",
    "smollm2": """The model is the Instruct one, in 4-bit weights, at a learning rate of 1e-4, on 512 tokens of novels a step;
one run of each, described. The edits end halfway, at step 50. In the table above, the baseline is the model that continues
unedited.""",
}
HIDDEN = """With the key hidden until step {until:,}, the sink is delayed by more than these steps: {seen:,} steps after the key
was shown, attention to the first token is {late}; in the same seeds, never hidden, it is {plain} at step {seen:,}. It is still
rising, by {rise} in the last {steps:,} steps. By step {last:,} it comes to stay above {level} in {came} of these
{seeds} seeds, and in {others} of them if it is never hidden. In no row do more than {elsewhere:.1f}% of heads sink on tokens 2
to 5."""
RELEASED = """Half of the attention that was lost is back {steps} steps after the release."""
TOGETHER = """{both} of {rows} changed rows have both a smaller sink and a smaller activation, {sink} a smaller activation
alone, {activation} a smaller sink alone. They do come apart with post-norm ([Norms](pretraining-340k.md#norms)):
attention to the first token is {post}, and the largest activation {post_spike} times the median, in the {post_seeds} seeds
of that row, which is described. A row with a small sink may only be slower: in the last {steps:,} steps attention to the
first token rises by {rise} in the baseline, and, by intervals over 8 seeds, it also rises with {rising}."""
COURSES_CAPTION = """*Means over seeds, with 95% intervals from 8 seeds on. Left: the first key is hidden while the model learns.
Right: `mini-sink` learns on; its edits end at the dotted line.*"""
APART_CAPTION = """*Each row at its last step: points are seeds, crosses means.*"""
CAPTION = """*The step from which each quantity stays beyond half of its change in training, or of the change of its logarithm.
Points: seeds; bars: mean and 95% interval over seeds.*"""


def events(data: xarray.Dataset, scale: Callable[[NDArray], NDArray] = np.array) -> dict[str, NDArray]:
    """The step of each event in each run, in order: float[run], NaN for a run that swings back at the end."""
    quantities = {
        LOSS: -scale(data["loss"].values),
        ATTENTION: scale(first_share(data)),
        ACTIVATION: scale(spike(data)),
        NORM: scale(data["norm_ratio"].max("depth").values),
        VALUES: -scale(data["value_ratio"].min("layer").values),
    }
    return in_order(data["step"].values, quantities)


def devices_text(data: Mapping[str, xarray.Dataset], again: Mapping[str, xarray.Dataset]) -> str:
    """The rows with runs on another device than the baseline's, and how far their repeated runs differ.

    again: the runs that were repeated on the baseline's device, a seed of each row.
    """
    rows: dict[str, list[int]] = {}
    for row, seed in learning():
        if on_gpu(row, seed):
            rows.setdefault(row, []).append(seed)
    listed = [f"{labels(row.partition('/')[0])[row]} ({len(seeds)})" for row, seeds in rows.items()]
    gaps = {name: [paired(again[row], data[row], name).item() for row in rows if row in again] for name in ("first", "loss")}
    ratios = [
        numbers(again[row])["spike"].item() / numbers(data[row].sel(run=again[row]["run"]))["spike"].item() for row in again
    ]
    return DEVICES.format(
        listed=", ".join(listed),
        count=len(ratios),
        first=shown(np.array(gaps["first"]), 3),
        largest=f"{np.abs(gaps['first']).max():.3f}",
        loss=shown(np.array(gaps["loss"]), 3),
        low=f"{min(ratios):.2f}",
        high=f"{max(ratios):.2f}",
    )


def with_kurtosis(data: xarray.Dataset, again: xarray.Dataset) -> xarray.Dataset:
    """Add the kurtosis of the same seeds trained again to a row whose logs are older than this measure; NaN for other seeds."""
    own = again["kurtosis"][:, np.isin(again["step"].values[0], data["step"].values[0])]
    return data.assign(kurtosis=own.reindex(run=data["run"]))


def order(data: xarray.Dataset) -> list[str]:
    """The events with their intervals, on two scales, and how far attention is from the two that may feed the sink."""
    found, logs = events(data), events(data, np.log)
    lines = [[name, shown(steps, 0), shown(logs[name], 0)] for name, steps in found.items()]
    later = " ".join([*(apart(name, found, logs) for name in (VALUES, ACTIVATION)), BELOW])
    steps = data["step"].values[0]
    text = ORDER.format(seeds=data.sizes["run"], apart=int(steps[1] - steps[0]))
    return [fill(text), markdown(["quantity", "halfway", "halfway in logarithms"], lines), fill(later)]


def apart(name: str, *scales: Mapping[str, NDArray]) -> str:
    """How much later than a quantity attention grows, paired by seed, and whether both scales show the same order."""
    later = [each[ATTENTION] - each[name] for each in scales]
    found = [intervals.interval(each) for each in later]
    signs = {int(np.sign(each.low)) if each.low is not None and each.low * each.high > 0 else 0 for each in found}
    same = {0: "no order is shown", 1: "it is second on both scales", -1: "it is first on both scales"}
    word = same[signs.pop()] if len(signs) == 1 else "an order is shown on one scale only"
    return LATER.format(quantity=name, linear=shown(later[0], 0), logs=shown(later[1], 0), word=word)


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
    """The events on two lines of time, halfway and halfway in logarithms."""
    figure = Figure(figsize=(10, 2.8), layout="constrained")
    found, logs = events(data), events(data, np.log)
    for ax, title, steps in zip(
        figure.subplots(1, 2, sharey=True), ("halfway", "halfway in logarithms"), (found, logs), strict=True
    ):
        for place, name in enumerate(found):
            interval = intervals.interval(steps[name])
            ax.scatter(steps[name], np.full(len(steps[name]), place), s=14, color="C0", alpha=0.35, linewidth=0)
            if interval.low is not None:
                ax.plot([interval.low, interval.high], [place, place], color="C0", linewidth=2)
            ax.scatter(interval.mean, place, marker="|", s=140, color="black", zorder=3)
        ax.set_yticks(range(len(found)), list(found))
        ax.set_ylim(len(found) - 0.5, -0.5)
        ax.set_xlim(0, float(np.nanmax(data["step"].values)))
        ax.set_title(title, fontsize=9)
        ax.set_xlabel("training step", fontsize=9)
        ax.tick_params(labelsize=8)
        ax.grid(axis="x", color="0.92")
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=150)


def draw_courses(data: Mapping[str, xarray.Dataset], file: Path) -> None:
    """Attention to the first token along the trainings of `hidden` and of `released`."""
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    for ax, study in zip(figure.subplots(1, 2), ("hidden", "released"), strict=True):
        for row in (row for row in learning_rows() if row.startswith(f"{study}/") and row in data):
            steps, values = data[row]["step"].values[0], first_share(data[row])
            ax.plot(steps, values.mean(axis=0), label=f"{labels(study)[row]} ({len(values)})", linewidth=1.8)
            if len(values) >= FEWEST:
                each = [intervals.interval(at) for at in values.T]
                ax.fill_between(steps, *([getattr(one, end) for one in each] for end in ("low", "high")), alpha=0.2, linewidth=0)
        ax.set_ylim(0, 0.42)
        ax.set_xlim(0, float(steps.max()))
        ax.set_xlabel("training step", fontsize=9)
        ax.set_ylabel("attention to the first token", fontsize=9)
        ax.legend(frameon=False, fontsize=8, title="(seeds)", title_fontsize=8, alignment="left")
        ax.spines[["top", "right"]].set_visible(False)
    ax.axvline(steps.max() / 2, ymax=0.7, color="0.5", linestyle=":", linewidth=1)
    figure.savefig(file, dpi=150)


def draw_apart(data: Mapping[str, xarray.Dataset], file: Path) -> None:
    """Activation against attention to the first token, of each row of `optimisers`."""
    figure = Figure(figsize=(9, 4.4), layout="constrained")
    ax = figure.subplots()
    for number, row in enumerate(row for row in learning_rows() if row.startswith("optimisers/") and row in data):
        colour = "black" if is_baseline(row) else f"C{number - 1}"
        first, largest = first_share(data[row])[:, -1], spike(data[row])[:, -1]
        ax.scatter(first, largest, s=16, color=colour, alpha=0.4, linewidth=0)
        ax.scatter(first.mean(), largest.mean(), s=70, marker="X", color=colour, label=labels("optimisers")[row])
    ax.set_xlabel("attention to the first token")
    ax.set_ylabel("largest activation over the median")
    ax.set_xlim(left=0)
    ax.set_yscale("log")
    ax.set_yticks([10, 20, 50, 100], ["10", "20", "50", "100"])
    ax.minorticks_off()
    ax.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1, 1))
    ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=150)


def labels(study: str) -> dict[str, str]:
    """The labels of a table's rows."""
    return {f"{study}/{name}": str(row["row"]["label"]) for name, row in table_of(study)["trainings"].items()}


def hidden_text(data: Mapping[str, xarray.Dataset], row: str = "hidden/until-2000", until: int = 2000) -> str:
    """Whether a sink that was hidden early is only late, and whether heads sink on another token instead."""
    own, steps = data[row], data[row]["step"].values[0]
    base = data[BASELINE].sel(run=np.isin(data[BASELINE]["run"], own["run"]))
    seen = int(steps[-1]) - until
    place = int(np.flatnonzero(steps == seen)[0])
    rows = [data[each] for each in learning_rows() if each.startswith("hidden/") and each in data]
    return HIDDEN.format(
        until=until,
        seen=seen,
        last=int(steps[-1]),
        level=LEVEL,
        late=shown(first_share(own)[:, -1], 3),
        plain=shown(first_share(base)[:, place], 3),
        rise=shown(rise(own), 3),
        steps=LATE,
        came=np.isfinite(emergence(own)[0]).sum(),
        others=np.isfinite(emergence(base)[0]).sum(),
        seeds=own.sizes["run"],
        elsewhere=max(end(each, sinks(each))[:, 1:].mean(axis=0).max() for each in rows),
    )


def released_text(data: Mapping[str, xarray.Dataset]) -> str:
    """How many steps after the release half of the difference from the unedited model has gone, paired by seed."""
    own, plain = (first_share(data[f"released/{row}"]) for row in ("hidden", "plain"))
    steps = data["released/hidden"]["step"].values[0]
    release = int(np.flatnonzero(steps == steps[-1] / 2)[0])
    back = own >= ((own + plain)[:, release] / 2)[:, None]
    first = np.array([np.flatnonzero(run[release:])[0] if run[release:].any() else -1 for run in back])
    return RELEASED.format(steps=shown(np.where(first >= 0, steps[release + first] - steps[release], np.nan), 0))


def together_text(data: Mapping[str, xarray.Dataset]) -> str:
    """How many rows of `optimisers` have a smaller sink, a smaller activation, or both, than the baseline in their seeds."""
    rows = [row for row in learning_rows() if row.startswith("optimisers/") and row in data and not is_baseline(row)]
    less = np.array([[paired(data[row], data[BASELINE], name).mean() < 0 for name in ("first", "spike")] for row in rows])
    post = numbers(data[POST])
    return TOGETHER.format(
        rows=len(rows),
        post=shown(post["first"], 3),
        post_spike=shown(post["spike"], 0),
        post_seeds=len(post["first"]),
        steps=LATE,
        rise=shown(rise(data[BASELINE]), 3),
        rising=rising(data),
        both=less.all(axis=1).sum(),
        sink=(less == [False, True]).all(axis=1).sum(),
        activation=(less == [True, False]).all(axis=1).sum(),
    )


def rise(data: xarray.Dataset) -> NDArray:
    """By how much attention to the first token rises in the last LATE steps: float[run]."""
    at, first = data["step"].values[0], first_share(data)
    return first[:, -1] - first[:, int(np.flatnonzero(at == at[-1] - LATE)[0])]


def rising(data: Mapping[str, xarray.Dataset]) -> str:
    """The rows of `optimisers` in which attention to the first token rises at the end, by the interval over seeds."""
    found = []
    for row, label in labels("optimisers").items():
        if row in data and data[row].sizes["run"] >= FEWEST and not is_baseline(row):
            low = intervals.interval(rise(data[row])).low
            found += [label] if low is not None and low > 0 else []
    return " and ".join(filter(None, [", ".join(found[:-1]), *found[-1:]])) or "no other row"


def kurtosis(data: Mapping[str, xarray.Dataset]) -> list[str]:
    """A sentence and a table: the excess kurtosis of activations in each row of `optimisers`."""
    found = {label: at_end(data[row], "kurtosis", np.max) for row, label in labels("optimisers").items() if row in data}
    base = shown(at_end(data[MEASURED], "kurtosis", np.max), 2)
    return [
        fill(KURTOSIS.format(base=base, muon=shown(found["Muon"], 2))),
        markdown(["row", "excess kurtosis"], [[row, shown(found[row], 2)] for row in found]),
    ]


def page(data: Mapping[str, xarray.Dataset], devices: str) -> str:
    """The page, in Markdown. devices: what is said of the devices that trained its rows."""
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
        if study == "hidden":
            figure = f"![Attention while models learn with edits](images/{COURSES})"
            parts += [fill(hidden_text(data)), figure, fill(COURSES_CAPTION)]
        if study == "released":
            parts.append(fill(released_text(data)))
        if study == "optimisers":
            figure = f"![Activation against attention](images/{APART})"
            parts += [fill(together_text(data)), figure, fill(APART_CAPTION), *kurtosis(data)]
    parts += ["## Devices", fill(devices)]
    claims = words(itertools.chain(*verdicts.values()))
    if claims:
        parts += ["## Claims", "By the [one rule](judgements.md), of rows with 8 seeds; untested claims are left out.", claims]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Read the kept logs, write the page and draw its figure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=PAGE, help="the page to write")
    parser.add_argument("--images", type=Path, default=IMAGES, help="the folder of its figure")
    options = parser.parse_args()
    data = kept([BASELINE, POST, *learning_rows()])
    [trained_again] = kept([BASELINE], lambda row: RETRAINED).values()
    data[MEASURED] = with_kurtosis(data[MEASURED], trained_again)
    options.images.mkdir(parents=True, exist_ok=True)
    draw(data[BASELINE], options.images / IMAGE)
    draw_courses(data, options.images / COURSES)
    draw_apart(data, options.images / APART)
    again = kept([row for row in learning_rows() if home_of(f"devices/{row}", 0).parent.exists()], "devices/{}".format)
    options.out.write_text(page(data, devices_text(data, again)), encoding="utf-8")
    print(options.out)


if __name__ == "__main__":
    main()
