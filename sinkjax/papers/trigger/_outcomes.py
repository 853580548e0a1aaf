"""Outcomes of trained models of the trigger task: a number for each run, NaN for one that diverged.

A mass is a mean over held-out sequences and over the rows of one kind: the trigger's, or the rows of all other tokens but BOS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sinkjax.studies.scope import percentage
from sinkjax.studies.vocabulary import Measure

if TYPE_CHECKING:
    import xarray

DONE = "converged"  # the outcome of a run that met the stopping rule
TRIGGER, OTHERS, EVERY = "trigger", "others", "every"  # rows of a mass, and of a loss
IDENTITY = "identity edit: 0 added to BOS's logit"
ROWS, TARGETS = {"trigger": TRIGGER, "other": OTHERS}, {"BOS": "bos", "later tokens": "elsewhere"}
NOTHING = 1e-8  # added to a whole row's weight, so that a head without any has none of it on BOS
UNIT, MILLION = (0.0, 1.0), 1e6
HEADS = ("run", "layer", "head")


def by_head(data: xarray.Dataset, kind: str) -> NDArray:
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


def in_whole_rows(data: xarray.Dataset, target: str) -> NDArray:
    """Weight on a target in the other rows in units of a whole row: float[run, layer, head].

    It is the weight itself where rows sum to 1, and does not change with the scale of the weights.
    """
    weight = data["weight"].transpose("rows", "target", *HEADS)
    whole = weight.sum("target").max("rows")
    return np.asarray((weight.sel(rows=OTHERS, target=target) / (whole + NOTHING)).values)


def left(data: xarray.Dataset) -> NDArray:
    """The loss of each run in per cent of an idle model's (one that writes nothing): float[run]."""
    return np.asarray(100 * (data["loss"].sel(error_rows=EVERY) / data["null_loss"]).values)


def only(values: NDArray, data: xarray.Dataset, solved: float | None) -> NDArray:
    """Values of the runs that solved the task, NaN for the others; None: of all runs."""
    return values if solved is None else np.where(left(data) < solved, values, np.nan)


@Measure.define(label="runs that met the stopping rule (%)", range=(0.0, 100.0))
def stopped(data: xarray.Dataset) -> NDArray:
    """100 for a run that met the stopping rule, else 0."""
    return 100.0 * (data["outcome"].values == DONE)


@Measure.define(label="steps until then")
def steps_to_stop(data: xarray.Dataset) -> NDArray:
    """Steps until the stopping rule was met, inf if it was not."""
    return np.where(data["outcome"].values == DONE, data["steps"].values, np.inf)


@Measure.define(
    label="runs that solve the task (%)",
    range=(0.0, 100.0),
    note="A run solves the task if its held-out loss is below a small part (`solved`) of that of a model that writes nothing.",
)
def solves(data: xarray.Dataset, solved: float) -> NDArray:
    """100 for a run whose loss is below `solved` per cent of an idle model's, else 0."""
    return np.where(np.isfinite(left(data)), 100.0 * (left(data) < solved), np.nan)


@Measure.define(label="held-out loss (millionths)")
def task_loss(data: xarray.Dataset) -> NDArray:
    """Mean squared error on held-out sequences, times a million."""
    return MILLION * np.asarray(data["loss"].sel(error_rows=EVERY).values)


@percentage(label="loss left of that of an idle model (%, at most 100)")
def loss_left(data: xarray.Dataset) -> NDArray:
    """Loss in per cent of an idle model's; 100 where it is larger."""
    return np.minimum(left(data), 100.0)


@Measure.define(label="largest held-out error")
def largest_error(data: xarray.Dataset) -> NDArray:
    """The largest absolute error of any output on held-out sequences."""
    return np.asarray(data["largest_error"].values)


@Measure.define(
    label="weight on {target} in {rows} rows",
    note="""A mass is a mean over held-out sequences and over the trigger's rows or the other rows (those of all tokens but BOS
        and the trigger). The weight is the attention weight itself; the share is its fraction of the row's absolute weight.""",
)
def weight(data: xarray.Dataset, target: str = "BOS", rows: str = "other") -> NDArray:
    """Mean weight on BOS or on later tokens, over layers and heads."""
    return np.asarray(data["weight"].sel(rows=ROWS[rows], target=TARGETS[target]).mean(("layer", "head")).values)


@Measure.define(label="share of {target} in {rows} rows", range=UNIT)
def weight_share(data: xarray.Dataset, target: str = "BOS", rows: str = "other") -> NDArray:
    """Mean share of a row's absolute weight on BOS or on later tokens, over layers and heads."""
    return np.asarray(data["share"].sel(rows=ROWS[rows], target=TARGETS[target]).mean(("layer", "head")).values)


@Measure.define(
    label="weight on {target} in other rows, in whole rows",
    range=UNIT,
    note="""Weights of unnormalised attention depend on a scale that values can undo. So they are also given in units of a whole
        row, the trigger's or another, whichever has more weight; for softmax this is the weight itself.""",
)
def whole_rows(data: xarray.Dataset, target: str = "BOS", solved: float | None = None) -> NDArray:
    """Mean weight in the other rows in whole rows, over layers and heads; with `solved`, of runs that solve the task."""
    return only(in_whole_rows(data, TARGETS[target]).mean(axis=(1, 2)), data, solved)


@Measure.define(
    label="what BOS writes in other rows, in whole rows",
    note="""What BOS writes is the mean norm of a_i0 v_0 W_O in the other rows over that of all that the head writes in a row, the
        trigger's or another, whichever is more. It is small for a softmax head too if BOS's value is.""",
)
def bos_writes(data: xarray.Dataset, solved: float | None = None) -> NDArray:
    """What BOS writes, mean over layers and heads; with `solved`, of runs that solve the task."""
    return only(by_head(data, "written").mean(axis=(1, 2)), data, solved)


@Measure.define(
    label="weight of other rows that goes to the escape",
    range=UNIT,
    note="""The escape gets the weight of a row that is on no key (sink logit, off by one), or the part by which a gate is less
        open in the other rows than in the trigger's. Softmax has none.""",
)
def escaped(data: xarray.Dataset) -> NDArray:
    """The weight that the other rows leave to a sink logit, to the 1 of off by one, or to a closed gate, mean over heads."""
    if "gate" in data:
        part = 1 - data["gate"].sel(rows=OTHERS) / data["gate"].max("rows")
    else:
        part = 1 - data["weight"].sel(rows=OTHERS).sum("target", skipna=False)
    return np.asarray(np.maximum(part.mean(("layer", "head")).values, 0.0))


@Measure.define(label="largest difference from 1/j on tokens 1 to j, trigger row")
def unevenness(data: xarray.Dataset) -> NDArray:
    """The largest difference of the trigger row's weights from even ones, mean over layers and heads."""
    return np.asarray(data["uneven"].mean(("layer", "head")).values)


@Measure.define(label="largest standard deviation of a weight over sequences")
def spread_of_weights(data: xarray.Dataset) -> NDArray:
    """The largest standard deviation over sequences of any weight of the maps."""
    return np.asarray(data["map_std"].max(("layer", "head", "query", "key"), skipna=False).values)


@Measure.define(label="weight on {what} in the trigger's row")
def trigger_row(data: xarray.Dataset, place: int, what: str = "BOS") -> NDArray:
    """Mean weight of head 0 of layer 0 on BOS, or on each of the tokens after it, in the row of a trigger at `place`."""
    row = data["map_mean"].values[:, 0, 0, place, : place + 1]
    return np.asarray(row[:, 0] if what == "BOS" else row[:, 1:].mean(axis=1))


@Measure.define(label="{kind} on BOS of the head with most of it, other rows", range=UNIT)
def strongest_head(data: xarray.Dataset, kind: str = "part", solved: float | None = None) -> NDArray:
    """The mass of the head with the strongest sink on BOS (`by_head`); with `solved`, of runs that solve the task."""
    return only(by_head(data, kind).max(axis=(1, 2)), data, solved)


@Measure.define(label="heads whose {kind} on BOS in other rows is at least {least} (%)", range=(0.0, 100.0))
def sinking_heads(data: xarray.Dataset, kind: str, least: float, solved: float | None = None) -> NDArray:
    """Percentage of heads that put at least `least` on BOS (`by_head`); with `solved`, of runs that solve the task."""
    found = by_head(data, kind)
    many = np.where(np.isfinite(found).all(axis=(1, 2)), 100 * (found >= least).mean(axis=(1, 2)), np.nan)
    return only(many, data, solved)
