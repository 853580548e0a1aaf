"""Write the numbers and figures of docs/results/while-it-learns.md from the kept logs of the plan's trainings.

    python scripts/learning_page.py      half a minute; nothing is trained
    python scripts/front_page.py         the page

while-it-learns.csv has the order in which the parts of a sink come about, a table for each study of edits, releases and
optimisers, and the numbers of the page; while-it-learns-claims.csv has the claims.
"""

from __future__ import annotations

import argparse
import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import kept_logs
import numpy as np
import xarray
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pretrain_page import (
    DATA,
    FEWEST,
    IMAGES,
    Table,
    all_tables,
    as_csv,
    claims_csv,
    courses,
    emergence,
    first_share,
    is_baseline,
    judged,
    kept,
    machines,
    numbers,
    of_page,
    paired,
    shown,
    spike,
)
from pretrain_runs import BASELINE, LEARNING, is_kept, kept_as, learning, learning_rows, on_gpu, table_of
from pretrain_runs import HEAD as LEVEL

from sinkjax.analysis import intervals
from sinkjax.config_files.files import write
from sinkjax.papers.emergence._onsets import in_order
from sinkjax.papers.pretrain._outcomes import at_end, end, sinks

COURSES, APART = (f"while-it-learns-{name}.png" for name in ("courses", "optimisers"))
MEASURED, RETRAINED = "optimisers/adamw", "emergence/softmax"  # the baseline in its table, and its seeds 3 to 10 trained again
POST = "gu-norm/post"  # a row of the queue in which sink and activation come apart
LATE = 1000  # steps at the end in which attention may still rise
LOSS, ATTENTION = "held-out loss", "attention to the first token"
ACTIVATION, NORM = "largest activation over the median", "norm of the first token over others'"
VALUES = "norm of the first token's value over others'"
# The row that others are compared with, where a loaded model is trained and not the baseline.
PLAIN = {"released": "released/plain", "chats": "chats/softmax", "smollm2": "smollm2/plain"}


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


def of_devices(data: Mapping[str, xarray.Dataset], again: Mapping[str, xarray.Dataset]) -> dict[str, object]:
    """The rows with runs on another device than the baseline's, and how far their repeated runs differ.

    again: the runs that were repeated on the baseline's device, a seed of each row.
    """
    gpu = Counter(row for row, seed in learning() if on_gpu(row, seed))
    gaps = {name: [paired(again[row], data[row], name).item() for row in gpu if row in again] for name in ("first", "loss")}
    ratios = [
        numbers(again[row])["spike"].item() / numbers(data[row].sel(run=again[row]["run"]))["spike"].item() for row in again
    ]
    return {
        "listed": ", ".join(f"{labels(row.partition('/')[0])[row]} ({count})" for row, count in gpu.items()),
        "repeated": len(ratios),
        "first_gap": shown(np.array(gaps["first"]), 3),
        "largest_gap": f"{np.abs(gaps['first']).max():.3f}",
        "loss_gap": shown(np.array(gaps["loss"]), 3),
        "low_ratio": f"{min(ratios):.2f}",
        "high_ratio": f"{max(ratios):.2f}",
    }


def with_kurtosis(data: xarray.Dataset, again: xarray.Dataset) -> xarray.Dataset:
    """Add the kurtosis of the same seeds trained again to a row whose logs are older than this measure; NaN for other seeds."""
    own = again["kurtosis"][:, np.isin(again["step"].values[0], data["step"].values[0])]
    return data.assign(kurtosis=own.reindex(run=data["run"]))


def of_order(data: xarray.Dataset) -> tuple[Table, dict[str, object]]:
    """The events with their intervals, on two scales, and how far attention is from the two that may feed the sink."""
    found, logs, steps = events(data), events(data, np.log), data["step"].values[0]
    lines = [[name, shown(each, 0), shown(logs[name], 0)] for name, each in found.items()]
    return Table(["row", "halfway", "halfway in logarithms"], lines), {
        "seeds": data.sizes["run"],
        "apart": int(steps[1] - steps[0]),
        **apart("values", VALUES, found, logs),
        **apart("activation", ACTIVATION, found, logs),
    }


def apart(quantity: str, name: str, *scales: Mapping[str, NDArray]) -> dict[str, object]:
    """How much later than a quantity attention grows, paired by seed, and whether both scales show the same order."""
    later = [each[ATTENTION] - each[name] for each in scales]
    found = [intervals.interval(each) for each in later]
    signs = {int(np.sign(each.low)) if each.low is not None and each.low * each.high > 0 else 0 for each in found}
    same = {0: "no order is shown", 1: "it is second on both scales", -1: "it is first on both scales"}
    word = same[signs.pop()] if len(signs) == 1 else "an order is shown on one scale only"
    return {f"{quantity}_linear": shown(later[0], 0), f"{quantity}_logs": shown(later[1], 0), f"{quantity}_word": word}


def course(data: Mapping[str, xarray.Dataset], study: str) -> Table:
    """Attention, activation and loss of a study's fine-tuned models at the beginning, halfway and at the end."""
    lines = []
    for row, own in data.items():
        if row.startswith(f"{study}/"):
            steps = own["step"].values[0]
            places = [0, int(np.abs(steps - np.nanmax(steps) / 2).argmin()), int(np.nanargmax(steps))]
            quantities = {"attention": (first_share(own), 3), "spike": (spike(own), 0), "loss": (own["loss"].values, 3)}
            for name, (values, digits) in quantities.items():
                lines.append([row.partition("/")[2], name, *(shown(values[:, place], digits) for place in places)])
    return Table(["row", "", "at the beginning", "halfway", "at the end"], lines)


def draw_courses(data: Mapping[str, xarray.Dataset], file: Path) -> None:
    """Attention to the first token along the trainings of `hidden` and of `released`."""
    figure = Figure(figsize=(6.4, 6.4), layout="constrained")
    for ax, study in zip(figure.subplots(2, 1), ("hidden", "released"), strict=True):
        rows = [row for row in learning_rows() if row.startswith(f"{study}/") and row in data]
        courses(ax, {labels(study)[row]: data[row] for row in rows})
        ax.set_ylim(0, 0.5)
    ax.axvline(ax.get_xlim()[1] / 2, ymax=0.64, color="0.5", linestyle=":", linewidth=1)
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


def of_hidden(data: Mapping[str, xarray.Dataset], row: str = "hidden/until-2000", until: int = 2000) -> dict[str, object]:
    """Whether a sink that was hidden early is only late, and whether heads sink on another token instead."""
    own, steps = data[row], data[row]["step"].values[0]
    base = data[BASELINE].sel(run=np.isin(data[BASELINE]["run"], own["run"]))
    seen = int(steps[-1]) - until
    rows = [data[each] for each in learning_rows() if each.startswith("hidden/") and each in data]
    return {
        "until": until,
        "seen": seen,
        "level": LEVEL,
        "late": shown(first_share(own)[:, -1], 3),
        "plain": shown(first_share(base)[:, int(np.flatnonzero(steps == seen)[0])], 3),
        "hidden_rise": shown(rise(own), 3),
        "hidden_last": int(steps[-1]),
        "hidden_seeds": own.sizes["run"],
        "came": np.isfinite(emergence(own)[0]).sum(),
        "others": np.isfinite(emergence(base)[0]).sum(),
        "elsewhere": f"{max(end(each, sinks(each))[:, 1:].mean(axis=0).max() for each in rows):.1f}",
    }


def of_released(data: Mapping[str, xarray.Dataset]) -> dict[str, object]:
    """How many steps after the release half of the difference from the unedited model has gone, paired by seed."""
    own, plain = (first_share(data[f"released/{row}"]) for row in ("hidden", "plain"))
    steps = data["released/hidden"]["step"].values[0]
    release = int(np.flatnonzero(steps == steps[-1] / 2)[0])
    back = own >= ((own + plain)[:, release] / 2)[:, None]
    first = np.array([np.flatnonzero(run[release:])[0] if run[release:].any() else -1 for run in back])
    return {"back": shown(np.where(first >= 0, steps[release + first] - steps[release], np.nan), 0)}


def of_optimisers(data: Mapping[str, xarray.Dataset]) -> dict[str, object]:
    """How many rows of `optimisers` have a smaller sink, a smaller activation, or both, than the baseline in their seeds."""
    rows = [row for row in learning_rows() if row.startswith("optimisers/") and row in data and not is_baseline(row)]
    less = np.array([[paired(data[row], data[BASELINE], name).mean() < 0 for name in ("first", "spike")] for row in rows])
    post = numbers(data[POST])
    return {
        "rows": len(rows),
        "post": shown(post["first"], 3),
        "post_spike": shown(post["spike"], 0),
        "post_seeds": len(post["first"]),
        "steps": LATE,
        "baseline_rise": shown(rise(data[BASELINE]), 3),
        "rising": rising(data),
        "both": less.all(axis=1).sum(),
        "sink": (less == [False, True]).all(axis=1).sum(),
        "activation": (less == [True, False]).all(axis=1).sum(),
    }


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


def of_kurtosis(data: Mapping[str, xarray.Dataset]) -> Table:
    """The excess kurtosis of activations in each row of `optimisers`."""
    rows = {row: label for row, label in labels("optimisers").items() if row in data}
    return Table(
        ["row", "excess kurtosis"], [[label, shown(at_end(data[row], "kurtosis", np.max), 2)] for row, label in rows.items()]
    )


def all_of(
    data: Mapping[str, xarray.Dataset], again: Mapping[str, xarray.Dataset], verdicts: Mapping[str, Sequence[Any]]
) -> dict[str, Table]:
    """The tables, and the numbers that the page names."""
    found = {}
    for study in LEARNING:
        own = {row: values for row, values in data.items() if row == BASELINE or row.startswith(f"{study}/")}
        rows = [row for row in learning_rows() if row.startswith(f"{study}/")]
        found[f"table {study}"] = all_tables(own, rows, PLAIN.get(study, BASELINE), verdicts)[study]
        if study in PLAIN:
            found[f"course {study}"] = course(own, study)
    found["order"], order = of_order(data[BASELINE])
    found["kurtosis"] = of_kurtosis(data)
    sections = (order, of_hidden(data), of_released(data), of_optimisers(data), of_devices(data, again))
    counts = {"kept": sum(is_kept(kept_as(row), seed) for row, seed in learning()), "planned": len([*learning()])}
    numbers = dict(itertools.chain(*(each.items() for each in sections))) | counts | {"machines": machines(learning())}
    return found | {"page": of_page(numbers)}


def main() -> None:
    """Read the kept logs, write their numbers and draw the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--images", type=Path, default=IMAGES, help="the folder of the figures")
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of the numbers")
    options = parser.parse_args()
    data = kept([BASELINE, POST, *learning_rows()])
    [trained_again] = kept([BASELINE], lambda row: RETRAINED).values()
    data[MEASURED] = with_kurtosis(data[MEASURED], trained_again)
    options.images.mkdir(parents=True, exist_ok=True)
    draw_courses(data, options.images / COURSES)
    draw_apart(data, options.images / APART)
    again = kept([row for row in learning_rows() if kept_logs.names(f"devices/{row}")], "devices/{}".format)
    verdicts = judged(data, learning_rows())
    write(options.data / "while-it-learns.csv", as_csv(all_of(data, again, verdicts)))
    write(options.data / "while-it-learns-claims.csv", claims_csv(verdicts))
    print(options.data / "while-it-learns.csv")


if __name__ == "__main__":
    main()
