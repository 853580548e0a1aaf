"""Onsets along the checkpoints of a training, the order of events, and figures over steps."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis.summary import Column, Row, column_rows, own_rows
from sinkjax.papers.emergence._series import DROPPED, MASKED
from sinkjax.report.figures.dots import Mark, points
from sinkjax.report.figures.lines import Line, Panel, lines
from sinkjax.report.figures.style import MOST_COLUMNS
from sinkjax.report.section import Drawing
from sinkjax.study import NO_EDIT, Numbers

ROW = "softmax"  # the training, its folder and its store
MEASURES = {  # variable of the store -> its description, with the unit
    "sink_0": "heads that sink on key 0 (%)",
    "sink_1": "heads that sink on key 1 (%)",
    "attention": "attention to key 0",
    "ratio": "largest |h| of token 0 over its median",
    "value_ratio": "norm of token 0's value over others'",
    "secondary": "later tokens aligned with the first (%)",
    "loss": "loss (nats per token)",
}
TYPES = {"first": "the first token", "previous": "the previous token", "induction": "what followed the same token before"}
HEADS = "heads that attend to {kind} beyond all random targets (%)"
STRONGEST = "most attention of a head to {kind}, above random targets"
# Bounds of the onsets: % of heads, times the median, nats per token. Models of before a sink lose 0.02 to 0.07 nats without key 0
# (steps 30 to 456 of these runs, seen before COST was set); what comes later had not been seen.
FORMED, MASSIVE, COST = 1.0, 100.0, 0.1


def of(read: Numbers, name: str, edit: str = NO_EDIT) -> NDArray[Any]:
    """A variable under an edit: float[run, step]."""
    return np.asarray(read[ROW][name].sel(edit=edit).transpose("run", "step").values)


def steps(read: Numbers) -> list[int]:
    """The steps whose models were kept."""
    return [int(step) for step in read[ROW]["step"].values]


def over_steps(read: Numbers) -> list[Row]:
    """Every measure of every checkpoint under every edit; effects are paired by seed, against no edit at the same step."""
    rows, seed, unedited = list[Row](), read.settings.seed, [f"step {step}" for step in steps(read)]
    for name, measure in MEASURES.items():
        base = of(read, name).T  # [step, run]
        for edit in (NO_EDIT, MASKED, DROPPED):
            labels = [(step if edit == NO_EDIT else f"{step}, {edit}", edit) for step in unedited]
            rows += column_rows(labels, measure, Column(of(read, name, edit).T, base), seed)
    for kind, (name, measure) in itertools.product(read[ROW]["type"].values, (("heads", HEADS), ("strongest", STRONGEST))):
        values = read[ROW][name].sel(type=kind).transpose("step", "run").values
        rows += own_rows(unedited, NO_EDIT, measure.format(kind=TYPES[kind]), values, seed)
    return rows


def reached(read: Numbers) -> dict[str, NDArray[Any]]:
    """Return whether each event of a training has happened: bool[run, step]."""
    sinks, loss, dropped = of(read, "sink_0"), of(read, "loss"), "dropping the MLP of block 0 at token 0"
    moved, halved = of(read, "sink_1", MASKED) - of(read, "sink_1"), of(read, "sink_0", DROPPED) < sinks / 2
    return {
        f"more than {FORMED:g} % of heads sink on key 0": sinks > FORMED,
        f"the largest |h| of token 0 is more than {MASSIVE:g} times its median": of(read, "ratio") > MASSIVE,
        f"masking key 0 costs more than {COST:g} nats per token": of(read, "loss", MASKED) - loss > COST,
        f"masking key 0 makes more than {FORMED:g} % of heads sink on key 1": moved > FORMED,
        f"{dropped} halves the heads that sink on key 0, of more than {FORMED:g} %": (sinks > FORMED) & halved,
        f"{dropped} costs more than {COST:g} nats per token": of(read, "loss", DROPPED) - loss > COST,
    }


def onsets(read: Numbers) -> list[Row]:
    """The first kept step of each event, mean over the runs that have one, and the number of these."""
    rows, first = list[Row](), f"first kept step (mean over runs that have one, of {read[ROW].sizes['run']})"
    for event, there in reached(read).items():
        has = there.any(axis=1)
        at = np.where(has, np.array(steps(read))[there.argmax(axis=1)], np.nan) if has.any() else np.array([np.nan])
        rows += [Row(event, "onsets", first, read.interval(at))]
        rows += [Row(event, "onsets", "runs that have one (%)", read.interval(100.0 * has))]
    return rows


def halfway(at: NDArray[Any], values: NDArray[Any]) -> NDArray[Any]:
    """Return the first step after which a run stays above the middle of its first and last value, inclusive, or NaN: float[run].

    at: int[point], the steps in order. values: float[run, point].
    """
    below = ~(values > (values[:, :1] + values[:, -1:]) / 2)
    following = np.where(below.any(axis=1), values.shape[1] - below[:, ::-1].argmax(axis=1), 0)  # the point after the last below
    return np.append(at, np.nan)[following]


def in_order(at: NDArray[Any], rising: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """`halfway` of each quantity, sorted by its mean; quantities that do not rise in every run come last."""
    found = {name: halfway(at, values) for name, values in rising.items()}
    return dict(sorted(found.items(), key=lambda item: np.nan_to_num(item[1], nan=np.inf).mean()))


def events(read: Numbers) -> dict[str, NDArray[Any]]:
    """Return the first kept step after which each quantity stays beyond the middle of its change, inclusive: float[run]."""
    strongest = read[ROW]["strongest"].transpose("type", "run", "step")
    rising = {
        **positive(read),
        "later tokens aligned with the first": of(read, "secondary"),
        **{f"a head that attends to {kind}": strongest.sel(type=name).values for name, kind in TYPES.items()},
    }
    return in_order(np.array(steps(read)), rising)


def log_events(read: Numbers) -> dict[str, NDArray[Any]]:
    """Return `events` by the middle in logarithms, earlier for what rises and later for what falls; positive quantities only."""
    return in_order(np.array(steps(read)), positive(read, np.log))


def positive(read: Numbers, scale: Callable[[NDArray[Any]], NDArray[Any]] = np.array) -> dict[str, NDArray[Any]]:
    """Return the quantities that are positive on a scale, and negative if they fall: float[run, step]."""
    return {
        "held-out loss": -scale(of(read, "loss")),
        "norm of the first token's value": -scale(of(read, "value_ratio")),
        "largest activation over the median": scale(of(read, "ratio")),
        "attention to the first token": scale(of(read, "attention")),
    }


def order(read: Numbers) -> list[Row]:
    """The step of each event, and how much later it is than the one before, paired by seed, on both scales."""
    found = []
    for of_events, scale in ((events, ""), (log_events, ", in logarithms")):
        before = None
        for name, at in of_events(read).items():
            found.append(Row(name, "order", f"step from which half of the change is made{scale}", read.interval(at)))
            if before is not None:
                found.append(Row(name, "order", f"steps after the line above{scale}", read.interval(at - before)))
            before = at
    return found


def timeline(read: Numbers) -> Drawing:
    """The events on two lines of time, by the middle of each change and of its logarithm."""
    marks = {}
    for title, found in (("halfway", events(read)), ("halfway in logarithms", log_events(read))):
        marks[title] = [Mark(name, read.interval(at), "mean over seeds") for name, at in found.items()]
    caption = f"""The first kept step at and after which each quantity is beyond the middle of its first and last value, or of
        their logarithms: means over the seeds with such a step, of {read[ROW].sizes["run"]}; bars: 95% intervals."""
    return Drawing("timeline", points(marks, "training step"), caption)


def checkpoints(read: Numbers) -> Drawing:
    """The sinks, what feeds them and the loss over steps, without an edit and with each."""
    x, names = list(steps(read)), (NO_EDIT, MASKED, DROPPED)
    labels = {
        "sink_0": "heads that sink\non key 0 (%)",
        "sink_1": "heads that sink\non key 1 (%)",
        "ratio": "largest |h| of token 0\nover its median",
        "value_ratio": "norm of token 0's value\nover others'",
        "loss": "loss\n(nats per token)",
    }
    panels = []
    for name, label in labels.items():
        values = [of(read, name, edit) for edit in names]
        limits = (float(np.min(values)), float(np.max(values))) if name == "loss" else None  # no 0, beside which changes vanish
        shown = [Line(edit, x, [*map(read.interval, of_edit.T)]) for edit, of_edit in zip(names, values, strict=True)]
        panels.append(Panel("", label, shown, log=name == "ratio", limits=limits))
    grid = [panels[start : start + MOST_COLUMNS] for start in range(0, len(panels), MOST_COLUMNS)]
    caption = f"""Models of {read[ROW].sizes["run"]} seeds at {len(x)} steps of their training, without an edit and with each.
        A head cannot sink on a masked key. Lines: means over seeds; bands: 95% intervals."""
    return Drawing("over-steps", lines(grid, "step", "above", share="none", courses=True, height=2.5), caption)
