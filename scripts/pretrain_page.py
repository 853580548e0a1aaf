"""Write the numbers and figures of docs/results/pretraining-340k.md from the kept logs of the queue of its plan.

    python scripts/pretrain_page.py      half a minute; nothing is trained
    python scripts/front_page.py         the page

pretraining-340k.csv has a table for each table of the papers, of the rows that have been trained so far, and the numbers of the
page: the step at which the sink emerges, censored in seeds without one, and loss against sink. The claims with eight seeds or
more, judged by the one rule, are in pretraining-340k-claims.csv.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kept_logs
import numpy as np
import xarray
from long_tables import COLUMNS, as_text
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pretrain_runs import BASELINE, HEAD, SIZE, home_of, identity, is_kept, kept_as, merged, queue, rows, table_of
from scipy import stats

from sinkjax.analysis import intervals
from sinkjax.analysis.verdicts import verdicts_csv
from sinkjax.config_files.files import write
from sinkjax.papers.emergence._onsets import onset
from sinkjax.papers.pretrain._outcomes import at_end, by_shares, end, sinks
from sinkjax.papers.pretrain._task import of_lines
from sinkjax.studies.assemble import assemble
from sinkjax.studies.registry import choose, find

ROOT = Path(__file__).resolve().parents[1]
IMAGES, DATA = (ROOT / "docs" / name for name in ("images", "results/data"))
FEWEST = 8  # seeds of a word, and of an interval

# The papers' other numbers, and how a cell prints them.
OF_PAPER = {
    "sink_1": "{}",
    **{f"sink_{token}": f"{{}} on token {token}" for token in range(2, 6)},
    "sink_bias": "{} on the bias",
    "first_share": "attention {}",
    "spike": "spike {}",
    "largest_mean": "activation {}",
    "perplexity": "perplexity {}",
    "effective_rank": "rank {}",
    "dimension_disparity": "disparity {}",
}
HEADS = (
    *("row", "the paper", "its loss", "seeds", "attention to token 1", "minus baseline", "heads, %", "elsewhere, %", "spike"),
    *("loss", "loss minus baseline", "word"),
)
# Tables without a BOS, whose rows are compared with the model that has none.
AGAINST = dict.fromkeys(("gu-fixed-token", "gu-random-tokens", "gu-prefix"), "mini/no-bos")
EMPTY: Mapping[str, Sequence[Any]] = {}
# What the tables change, for the colours of a figure, and the rows that it names.
KINDS = {
    "optimisation and data": ("gu-batch", "gu-data", "gu-learning-rate", "gu-weight-decay"),
    "blocks: heads, MLPs, norms, positions": ("gu-heads", "gu-mlp", "gu-norm", "gu-position", "li-head-norm"),
    "what is seen first": ("gu-fixed-token", "gu-prefix", "gu-random-tokens", "gu-window"),
    "what may leave token 1: biases, gates, logits": ("gu-bias", "gu-k-bias", "qiu-gates", "sink-logits"),
    "other normalisers": ("gu-normaliser", "gu-p-norm", "gu-scale", "gu-sigmoid"),
}
NAMED = {  # label, and where it stands beside its point
    "gu-weight-decay/decay-5": ("decay 5", (8, -3)),
    "gu-weight-decay/decay-2": ("decay 2", (-48, -3)),
    "gu-weight-decay/decay-0": ("no decay", (8, -14)),
    "gu-data/one-in-100": ("1 / 100 of the data", (8, -3)),
    "gu-heads/heads-8": ("8 heads", (-20, 9)),
    "gu-normaliser/elu-kernel": ("(elu(q) + 1)(elu(k) + 1)", (8, -3)),
    "sink-logits/sink-logit": ("sink logit", (-14, -40)),
    "gu-fixed-token/none": ("no BOS", (6, -44)),
    "gu-normaliser/sigmoid": ("sigmoid", (24, 34)),
    "li-head-norm/head-norm": ("head-wise RMSNorm", (60, 44)),
    "gu-learning-rate/quarter-long": ("rate / 4, steps x 4", (8, -4)),
}
KEYS = (*(f"token {token}" for token in range(2, 6)), "the bias")


def main() -> None:
    """Read the kept logs, write their numbers and draw the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--images", type=Path, default=IMAGES, help="the folder of the figures")
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of the numbers")
    options = parser.parse_args()
    data = trained()
    options.images.mkdir(parents=True, exist_ok=True)
    baseline = data[BASELINE]
    draw_emergence(baseline, options.images / "pretrain-340k-emergence.png")
    draw_losses(data, options.images / "pretrain-340k-losses.png")
    verdicts = judged(data, rows())
    found = {name: one for name, one in all_tables(data, rows(), verdicts=verdicts).items() if name != "mini"}  # in other tables
    found["page"] = of_page({**of_scope(data), **of_emergence(baseline), **of_losses(data)})
    write(options.data / "pretraining-340k.csv", as_csv(found))
    write(options.data / "pretraining-340k-claims.csv", claims_csv(verdicts))
    print(options.data / "pretraining-340k.csv")


def trained() -> dict[str, xarray.Dataset]:
    """The evaluations of every row that has a kept run, "study/row" -> [run, point, ...]; equal rows share theirs."""
    return kept(rows())


def kept(rows: Sequence[str], name_of: Callable[[str], str] = kept_as) -> dict[str, xarray.Dataset]:
    """The evaluations of rows, as `trained` returns them, from the logs that are kept under these names."""
    return {row: of_lines(*log) for row in rows if (log := merged(name_of(row)))}


def machines(runs: Iterable[tuple[str, int]]) -> str:
    """The devices and versions of JAX that trained the kept ones of these runs, (row, seed), and the number of runs on each."""
    logs = [kept_logs.read(home_of(kept_as(row), seed))[0] for row, seed in runs if is_kept(kept_as(row), seed)]
    found = Counter((log["devices"].removeprefix("1 x "), log["versions"]["jax"]) for log in logs)
    parts = [
        f"{'a CPU' if device == 'cpu' else device} with jax {jax} ({count})" for (device, jax), count in sorted(found.items())
    ]
    return ", ".join(parts[:-1]) + " and " * (len(parts) > 1) + parts[-1]


# Emergence.


def emergence(data: xarray.Dataset) -> tuple[NDArray, Any]:
    """The onset of each run's sink (inf: never), and the Kaplan-Meier estimate of the share of runs without one."""
    found = np.array([onset(*run, HEAD) for run in zip(data["step"].values, first_share(data), strict=True)])
    times = stats.CensoredData.right_censored(
        np.where(np.isfinite(found), found, data["step"].values[:, -1]), ~np.isfinite(found)
    )
    return found, stats.ecdf(times).sf


def draw_emergence(data: xarray.Dataset, file: Path) -> None:
    """Runs without a sink by step, and what their first token does: attention, its values, its activation."""
    found, survival = emergence(data)
    steps = data["step"].values
    panels = {
        "attention to the first token, mean over heads": first_share(data),
        "norm of its value over the others', smallest of layers": data["value_ratio"].min("layer").values,
        "largest activation over the median": spike(data),
    }
    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.subplots(2, 2).ravel()
    x = np.concatenate([[0], survival.quantiles])
    band = survival.confidence_interval()
    axes[0].step(x, np.concatenate([[1], survival.probabilities]), where="post", color="C0")
    low, high = (np.concatenate([[1], side.probabilities]) for side in (band.low, band.high))
    axes[0].fill_between(x, low, high, step="post", color="C0", alpha=0.2, linewidth=0)
    axes[0].set_title("share of seeds without a lasting sink", fontsize=9)
    axes[0].set_ylim(0, 1.02)
    for ax, (title, values) in zip(axes[1:], panels.items(), strict=True):
        for run in range(len(found)):
            ax.plot(steps[run], values[run], color="C0", alpha=0.35, linewidth=0.9)
        ax.plot(steps[0], np.nanmean(values, axis=0), color="C0", linewidth=2)
        ax.set_title(title, fontsize=9)
        ax.set_ylim(bottom=0)
    axes[1].axhline(HEAD, color="0.4", linestyle=":", linewidth=1)
    for ax in axes:
        ax.set_xlabel("training step", fontsize=9)
        ax.set_xlim(0, float(np.nanmax(steps)))
        ax.tick_params(labelsize=8)
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=150)


def of_emergence(data: xarray.Dataset) -> dict[str, object]:
    """When the sink emerges, and the first token's value and activation at that step."""
    found, survival = emergence(data)
    came, steps = np.flatnonzero(np.isfinite(found)), data["step"].values
    at = [int(np.flatnonzero(steps[run] == found[run])[0]) for run in came]
    drained, activation = data["value_ratio"].min("layer").values[came, at], spike(data)[came, at]
    below = np.flatnonzero(survival.probabilities <= 0.5)
    ranks = stats.spearmanr(first_share(data)[:, -1], spike(data)[:, -1])
    return {
        "level": HEAD,
        "came": len(came),
        "last": f"{int(np.nanmax(steps)):,}",
        "half": f"by step {int(survival.quantiles[below[0]]):,}" if len(below) else "at none of these steps",
        "earliest": f"{int(found.min()):,}",
        "drained": span(drained, 2),
        "activation": span(activation, 0),
        "apart": int(steps[0, 1] - steps[0, 0]),
        "rank": f"{ranks.statistic:.2f}",
        "p": f"{ranks.pvalue:.2g}",
    }


def span(values: NDArray, digits: int) -> str:
    """A median with the smallest and largest value."""
    return f"{np.median(values):.{digits}f} ({values.min():.{digits}f} to {values.max():.{digits}f})"


def first_share(data: xarray.Dataset) -> NDArray:
    """Mean attention to the first token, over heads: float[run, point]; by shares where rows need not sum to 1."""
    return np.asarray(data["share" if by_shares(data) else "received"].mean(("layer", "head")).values)


def spike(data: xarray.Dataset) -> NDArray:
    """The largest activation over the median, of the depth where it is largest: float[run, point]."""
    values = data["spike"].values
    return np.asarray(values.max(axis=tuple(range(2, values.ndim))))


# Tables.


def numbers(data: xarray.Dataset) -> dict[str, NDArray]:
    """The numbers of each run at its end: float[run], NaN for one that diverged."""
    return {
        "first": end(data, first_share(data)),
        "heads": end(data, sinks(data))[:, 0],
        "spike": end(data, spike(data)),
        "loss": at_end(data, "loss"),
    }


def paired(data: xarray.Dataset, base: xarray.Dataset, name: str) -> NDArray:
    """Differences from the baseline, paired by seed; seeds that only one of the two has are left out."""
    own, other = (dict(zip(each["run"].values.tolist(), numbers(each)[name], strict=True)) for each in (data, base))
    return np.array([own[seed] - other[seed] for seed in own if seed in other])


def studies(rows: Sequence[str]) -> list[str]:
    """The tables of rows, in their order."""
    return list(dict.fromkeys(row.partition("/")[0] for row in rows))


class Shown(str):
    """A mean as text, with its interval from FEWEST samples on, and the numbers in it. See `shown`."""

    numbers: tuple[float | None, ...]


def shown(values: NDArray, digits: int) -> Shown:
    """A mean, with its 95% interval over seeds from FEWEST of them on."""
    values = values[np.isfinite(values)]
    if len(values) == 0:
        return Shown("diverged")
    found = intervals.interval(values)
    ends = (found.low, found.high) if len(values) >= FEWEST else (None, None)
    text = f"{found.mean:.{digits}f}" + (f" [{ends[0]:.{digits}f}, {ends[1]:.{digits}f}]" if ends[0] is not None else "")
    made = Shown(text)
    made.numbers = (found.mean, *ends, len(values))
    return made


@dataclass(frozen=True)
class Table:
    """A table: its head and its lines, whose cells are text or `Shown`."""

    head: Sequence[str]
    lines: Sequence[Sequence[str]]


def of_page(numbers: Mapping[str, object]) -> Table:
    """Numbers that a page names, as a table."""
    texts = {name: f"{one:,}" if isinstance(one, int | np.integer) else one for name, one in numbers.items()}
    return Table(["row", "value"], [*map(list, texts.items())])


def as_csv(tables: Mapping[str, Table]) -> str:
    """The cells of tables, as scripts/long_tables.py has them."""
    found = []
    for name, table in tables.items():
        for cells in table.lines:
            row = ", ".join(cell for column, cell in zip(table.head, cells, strict=True) if column in ("row", "") and cell)
            for column, cell in zip(table.head, cells, strict=True):
                if isinstance(cell, Shown) and hasattr(cell, "numbers"):
                    found.append((name, row, column, *("" if one is None else one for one in cell.numbers), ""))
                elif column not in ("row", "") and cell not in ("", "-"):
                    found.append((name, row, column, *[""] * 4, cell))
    return as_text(COLUMNS, found)


def all_tables(
    data: Mapping[str, xarray.Dataset], rows: Sequence[str], base: str = BASELINE, verdicts: Mapping[str, Sequence[Any]] = EMPTY
) -> dict[str, Table]:
    """The table of each study that has a trained row besides the one that the others are compared with."""
    found, of_row = {}, row_words(verdicts, base)
    for study in studies(rows):
        value = table_of(study)
        words = {f"{study}/{name}": each["row"] for name, each in value["trainings"].items() if f"{study}/{name}" in rows}
        lines = [
            [*line(row, given, data, AGAINST.get(study, base)), ", ".join(of_row.get(identity(row), ()))]
            for row, given in words.items()
            if row in data
        ]
        if all(identity(row) == identity(base) for row in words if row in data):
            continue
        kept = [place for place, _ in enumerate(HEADS) if any(cells[place] not in ("", "-") for cells in lines)]
        found[study] = Table([HEADS[place] for place in kept], [[cells[place] for place in kept] for cells in lines])
    return found


def row_words(verdicts: Mapping[str, Sequence[Any]], base: str) -> dict[str, list[str]]:
    """The words on attention to token 1: identity of the row of each pair that is not the baseline -> words."""
    found: dict[str, list[str]] = {}
    for study, judged in verdicts.items():
        claims = table_of(study).get("claims", {})
        for one in judged:
            given = claims[one.name].get("contrast", {}).get("versus", {})
            if given.get("measure") == "first_share":
                pair = [identity(f"{study}/{given[side]}") for side in ("training", "minus")]
                words = found.setdefault(next(row for row in pair if row != identity(base)), [])
                words.extend([one.word] * (one.word not in words))
    return found


def is_baseline(row: str) -> bool:
    """Whether a row is the training that the tables share."""
    return identity(row) == identity(BASELINE)


def line(row: str, given: Mapping[str, Any], data: Mapping[str, xarray.Dataset], base: str = BASELINE) -> list[str]:
    """The cells of a row."""
    own, paper = numbers(data[row]), dict(given.get("paper") or ())
    said = [
        form.format(paper[name])
        for name, form in OF_PAPER.items()
        if name in paper and (name == "sink_1" or str(paper[name]) not in ("0.0", "0.01"))
    ]
    differences = (
        [shown(paired(data[row], data[base], name), 3) for name in ("first", "loss")]
        if identity(row) != identity(base) and base in data
        else ["", ""]
    )
    return [
        str(given.get("label") or row.partition("/")[2]),
        "; ".join(said) or "-",
        str(paper.get("valid_loss", "-")),
        str(data[row].sizes["run"]),
        shown(own["first"], 3),
        differences[0],
        shown(own["heads"], 1),
        elsewhere(data[row]),
        shown(own["spike"], 0),
        shown(own["loss"], 3),
        differences[1],
    ]


def elsewhere(data: xarray.Dataset) -> str:
    """The percentage of heads that sink on the key other than token 1 on which most of them do, and that key."""
    values = np.column_stack([end(data, sinks(data))[:, 1:], 100 * at_end(data, "sink_bias", shares="sink_bias_share")])
    place = int(np.nan_to_num(values).mean(axis=0).argmax())
    text = shown(values[:, place], 1)
    first = text.partition(" ")[0]
    return first if first in ("0.0", "diverged") else f"{text} on {KEYS[place]}"


def judged(data: Mapping[str, xarray.Dataset], rows: Sequence[str]) -> dict[str, list[Any]]:
    """The claims of each study whose rows have FEWEST seeds, judged by the one rule."""
    found = {}
    for study in studies(rows):
        config = choose(f"pretrain/{study}").config
        size = SIZE if config.size == "mini" else config.size
        config = dataclasses.replace(config, size=size, steps=None, seed=3, seeds=FEWEST)
        stores = {row.partition("/")[2]: store for row, store in data.items() if row.startswith(f"{study}/")}
        all_ = assemble(find(f"pretrain/{study}").trace(config, None), stores).verdicts if stores else ()
        found[study] = [one for one in all_ if one.judged or one.kind == "identity"]
    return found


def claims_csv(verdicts: Mapping[str, Sequence[Any]]) -> str:
    """The judged claims of tables, as a study's claims.csv has them."""
    head, *_ = verdicts_csv("", ()).splitlines(keepends=True)
    return head + "".join(verdicts_csv(f"pretrain/{study}", each, SIZE).removeprefix(head) for study, each in verdicts.items())


def courses(ax: Axes, data: Mapping[str, xarray.Dataset]) -> None:
    """Attention to the first token while rows learn, by their label: means, with 95% intervals from FEWEST seeds on."""
    for label, own in data.items():
        at, first = own["step"].values, first_share(own)
        steps = functools.reduce(np.intersect1d, at)  # runs may be evaluated at other steps
        values = np.stack([first[run][np.isin(at[run], steps)] for run in range(len(at))])
        ax.plot(steps, values.mean(axis=0), label=f"{label} ({len(values)})", linewidth=1.8)
        if len(values) >= FEWEST:
            each = [intervals.interval(at) for at in values.T]
            ax.fill_between(steps, *([getattr(one, end) for one in each] for end in ("low", "high")), alpha=0.2, linewidth=0)
    ax.set_xlim(0, float(steps.max()))
    ax.set_ylim(bottom=0)
    ax.set_xlabel("training step")
    ax.set_ylabel("attention to the first token")
    ax.legend(frameon=False, title="(seeds)", title_fontsize=10, loc="upper left", alignment="left")
    ax.spines[["top", "right"]].set_visible(False)


def draw_losses(data: Mapping[str, xarray.Dataset], file: Path) -> None:
    """Loss against attention to the first token: a point for each row's mean, in the colours of what its table changes."""
    distinct = {identity(row): row for row in reversed([*data])}
    means = {row: [float(np.nanmean(numbers(data[row])[name])) for name in ("first", "loss")] for row in distinct.values()}
    figure = Figure(figsize=(6.4, 6.4), layout="constrained")
    ax = figure.subplots()
    for number, (kind, tables) in enumerate(KINDS.items()):
        own = np.array([at for row, at in means.items() if row.partition("/")[0] in tables and not is_baseline(row)])
        ax.scatter(*own.reshape(-1, 2).T, s=34, color=f"C{number}", alpha=0.8, linewidth=0, label=kind)
    ax.scatter(
        *next(at for row, at in means.items() if is_baseline(row)), s=170, marker="*", color="black", label="baseline", zorder=3
    )
    arrow = {"arrowstyle": "-", "color": "0.5", "linewidth": 0.6, "shrinkB": 2}
    for row, (label, place) in NAMED.items():
        if row in means:
            ax.annotate(label, means[row], xytext=place, textcoords="offset points", fontsize=10, arrowprops=arrow)
    ax.set_xlabel("attention to the first token")
    ax.set_ylabel("held-out loss (nats a token)")
    ax.set_xlim(left=0)
    ax.set_yscale("log")
    ax.set_yticks([3, 3.5, 4, 4.5, 5], ["3.0", "3.5", "4.0", "4.5", "5.0"])
    ax.minorticks_off()
    ax.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0)
    ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=150)


def of_losses(data: Mapping[str, xarray.Dataset]) -> dict[str, object]:
    """How loss and sink go together over rows, by the rows' means."""
    distinct = {identity(row): row for row in reversed([*data])}
    means = np.array([[np.nanmean(numbers(data[row])[name]) for name in ("loss", "first")] for row in distinct.values()])
    ranks = stats.spearmanr(*means.T)
    return {"count": len(means), "losses_rank": f"{ranks.statistic:z.2f}", "losses_p": f"{ranks.pvalue:.2g}"}


def of_scope(data: Mapping[str, xarray.Dataset]) -> dict[str, object]:
    """How much of the plan has run, and the baseline's sink."""
    base = numbers(data[BASELINE])
    return {
        "kept": sum(is_kept(f"{SIZE}/{row}", seed) for row, seed in queue()),
        "planned": len([*queue()]),
        "machines": machines(queue()),
        "seeds": data[BASELINE].sizes["run"],
        "first": shown(base["first"], 3),
        "heads": shown(base["heads"], 1),
        "spike": shown(base["spike"], 0),
    }


if __name__ == "__main__":
    main()
