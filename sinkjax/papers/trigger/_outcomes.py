"""Outcomes of trained models of the trigger task: a number for each run, NaN for one that diverged.

A mass is a mean over held-out sequences and over the rows of one kind: the trigger's, or the rows of all other tokens but BOS.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray
from numpy.typing import NDArray

from sinkjax.study import PERCENT, Measure, percentage

DONE = "converged"  # the outcome of a run that met the stopping rule
TRIGGER, OTHERS, EVERY = "trigger", "others", "every"  # rows of a mass, and of a loss
IDENTITY = "identity edit: 0 added to BOS's logit"
ROWS, TARGETS = {"trigger": TRIGGER, "other": OTHERS}, {"BOS": "bos", "later tokens": "elsewhere"}
NOTHING = 1e-8  # added to a whole row's weight, so that a head without any has none of it on BOS
UNIT, MILLION = (0.0, 1.0), 1e6
HEADS = ("run", "layer", "head")


def by_head(data: xarray.Dataset, kind: str) -> NDArray[Any]:
    """Each head's use of BOS in the other rows: float[run, layer, head].

    Args:
        data: The store of a training.
        kind: "weight"; "share" of the row's weight; "part", the weight in units of a whole row, the trigger's or another,
            whichever has more weight; "written", BOS's contribution in units of the head's output in a whole row.
    """
    if kind == "written":
        return np.asarray(data["written"].transpose(*HEADS).values)
    if kind == "part":
        return in_whole_rows(data, "bos")
    return np.asarray(data[kind].sel(rows=OTHERS, target="bos").transpose(*HEADS).values)


def in_whole_rows(data: xarray.Dataset, target: str) -> NDArray[Any]:
    """Weight on a target in the other rows in units of a whole row: float[run, layer, head].

    It is the weight itself where rows sum to 1, and does not change with the scale of the weights.
    """
    weight = data["weight"].transpose("rows", "target", *HEADS)
    return np.asarray((weight.sel(rows=OTHERS, target=target) / (weight.sum("target").max("rows") + NOTHING)).values)


def mean_mass(data: xarray.Dataset, kind: str, rows: str, target: str) -> NDArray[Any]:
    """Weight on a target in some rows, or its share of their weight, mean over layers and heads: float[run]."""
    return np.asarray(data[kind].sel(rows=ROWS[rows], target=TARGETS[target]).mean(("layer", "head")).values)


def left(data: xarray.Dataset) -> NDArray[Any]:
    """The loss of each run in per cent of an idle model's (one that writes nothing): float[run]."""
    return np.asarray(100 * (data["loss"].sel(error_rows=EVERY) / data["null_loss"]).values)


def only(values: NDArray[Any], data: xarray.Dataset, solved: float | None) -> NDArray[Any]:
    """Values of the runs that solved the task, NaN for the others; None: of all runs."""
    return values if solved is None else np.where(left(data) < solved, values, np.nan)


STOPPED = Measure("runs that met the stopping rule (%)", lambda data: 100.0 * (data["outcome"].values == DONE), range=PERCENT)
STEPS_TO_STOP = Measure("steps until then", lambda data: np.where(data["outcome"].values == DONE, data["steps"].values, np.inf))
TASK_LOSS = Measure("held-out loss (millionths)", lambda data: MILLION * np.asarray(data["loss"].sel(error_rows=EVERY).values))
LOSS_LEFT = percentage("loss left of that of an idle model (%, at most 100)", lambda data: np.minimum(left(data), 100.0))
LARGEST_ERROR = Measure("largest held-out error", lambda data: np.asarray(data["largest_error"].values))
UNEVENNESS = Measure(
    "largest difference from 1/j on tokens 1 to j, trigger row", lambda data: np.asarray(data["uneven"].mean(HEADS[1:]).values)
)
SPREAD_OF_WEIGHTS = Measure(
    "largest standard deviation of a weight over sequences",
    lambda data: np.asarray(data["map_std"].max(("layer", "head", "query", "key"), skipna=False).values),
)
BOS_WRITES = Measure(
    "what BOS writes in other rows, in whole rows",
    lambda data: by_head(data, "written").mean(axis=(1, 2)),
    note="""What BOS writes is the mean norm of a_i0 v_0 W_O in the other rows over that of all that the head writes in a row,
        the trigger's or another, whichever is more. It is small for a softmax head too if BOS's value is.""",
)


def solves(solved: float) -> Measure:
    """100 for a run whose loss is below `solved` per cent of an idle model's, else 0."""

    def of(data: xarray.Dataset) -> NDArray[Any]:
        return np.where(np.isfinite(left(data)), 100.0 * (left(data) < solved), np.nan)

    note = "A run solves the task if its held-out loss is below a small part (`solved`) of that of a model that writes nothing."
    return Measure("runs that solve the task (%)", of, range=PERCENT, note=note)


def weight(target: str = "BOS", rows: str = "other") -> Measure:
    """Mean weight on BOS or on later tokens, over layers and heads."""

    note = """A mass is a mean over held-out sequences and over the trigger's rows or the other rows (those of all tokens but BOS
        and the trigger). The weight is the attention weight itself; the share is its fraction of the row's absolute weight."""
    return Measure(f"weight on {target} in {rows} rows", lambda data: mean_mass(data, "weight", rows, target), note=note)


def weight_share(rows: str = "other") -> Measure:
    """Mean share of a row's absolute weight on BOS, over layers and heads."""

    return Measure(f"share of BOS in {rows} rows", lambda data: mean_mass(data, "share", rows, "BOS"), range=UNIT)


def whole_rows(target: str = "BOS", solved: float | None = None) -> Measure:
    """Mean weight in the other rows in whole rows, over layers and heads; with `solved`, of runs that solve the task."""

    note = """Weights of unnormalised attention depend on a scale that values can undo. So they are also given in units of a whole
        row, the trigger's or another, whichever has more weight; for softmax this is the weight itself."""
    name, key = f"weight on {target} in other rows, in whole rows", TARGETS[target]
    return Measure(name, lambda data: only(in_whole_rows(data, key).mean(axis=(1, 2)), data, solved), range=UNIT, note=note)


def escaped() -> Measure:
    """The weight that the other rows leave to a sink logit, to the 1 of off by one, or to a closed gate, mean over heads."""

    def of(data: xarray.Dataset) -> NDArray[Any]:
        if "gate" in data:
            part = 1 - data["gate"].sel(rows=OTHERS) / data["gate"].max("rows")
        else:
            part = 1 - data["weight"].sel(rows=OTHERS).sum("target", skipna=False)
        return np.asarray(np.maximum(part.mean(("layer", "head")).values, 0.0))

    note = """The escape gets the weight of a row that is on no key (sink logit, off by one), or the part by which a gate is less
        open in the other rows than in the trigger's. Softmax has none."""
    return Measure("weight of other rows that goes to the escape", of, range=UNIT, note=note)


def trigger_row(place: int, what: str = "BOS") -> Measure:
    """Mean weight of head 0 of layer 0 on BOS, or on each of the tokens after it, in the row of a trigger at `place`."""

    def of(data: xarray.Dataset) -> NDArray[Any]:
        row = data["map_mean"].values[:, 0, 0, place, : place + 1]
        return np.asarray(row[:, 0] if what == "BOS" else row[:, 1:].mean(axis=1))

    return Measure(f"weight on {what} in the trigger's row", of)


def strongest_head(solved: float | None = None) -> Measure:
    """The mass of the head with the strongest sink on BOS (`by_head`); with `solved`, of runs that solve the task."""

    name = "part on BOS of the head with most of it, other rows"
    return Measure(name, lambda data: only(by_head(data, "part").max(axis=(1, 2)), data, solved), range=UNIT)


def sinking_heads(kind: str, least: float, solved: float | None = None) -> Measure:
    """Percentage of heads that put at least `least` on BOS (`by_head`); with `solved`, of runs that solve the task."""

    def of(data: xarray.Dataset) -> NDArray[Any]:
        found = by_head(data, kind)
        return only(np.where(np.isfinite(found).all(axis=(1, 2)), 100 * (found >= least).mean(axis=(1, 2)), np.nan), data, solved)

    return Measure(f"heads whose {kind} on BOS in other rows is at least {least} (%)", of, range=PERCENT)
