"""Outcomes in the log of a training: a number for each run at its end, NaN for one that diverged or is not finished.

Sink_k counts tokens from 1, as the papers do; in arrays and files they count from 0.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import xarray
from numpy.typing import NDArray

from sinkjax.analysis.summary import Row
from sinkjax.checkpoints.load import open_checkpoint
from sinkjax.model.normalisers import NAMED
from sinkjax.study import MODELS, Measure, Numbers, TrainedModels, alone, percentage, run_rows
from sinkjax.train.config import ALL_STEPS

KEYS = 5  # first positions whose sinks are columns
SINKS = """Sink_k is the share of heads and sequences in which token k, counted from 1 (key k - 1), receives more than 0.3 of
    the attention of the queries that see it, on the first 64 tokens of held-out blocks (Gu et al. 2025, section 3). Sink_* is
    that of a bias, sink token or sink logit, which has no key. Sinks are computed from the weights themselves where rows sum to 1
    (or to less, because a bias takes the rest), and from each row's shares of absolute weight for all other normalisers, as in
    the paper."""


def by_shares(data: xarray.Dataset) -> bool:
    """Whether the sinks of a training are computed from shares of each row's weight, as in Gu et al. 2025, not from weights."""
    config = data.attrs["training"]["config"]
    of = open_checkpoint(config["init"], weights=False).config.normaliser if "init" in config else NAMED[config["normaliser"]]
    return not of.rows_sum_to_1


def sinks(data: xarray.Dataset) -> NDArray[Any]:
    """Sink_k of the first positions in per cent, by weights or by shares: float[run, point, key]."""
    return np.asarray(100 * data["sink_share" if by_shares(data) else "sink"].values)


def end(data: xarray.Dataset, values: NDArray[Any]) -> NDArray[Any]:
    """The last entry of each run, of [run, point, ...]; NaN for a run that did not make all its steps: float[run, ...]."""
    last = np.isfinite(data["step"].values).sum(axis=1) - 1
    found = np.array(values[np.arange(len(last)), last], float)
    found[data["outcome"].values != ALL_STEPS] = np.nan
    return found


def at_end(data: xarray.Dataset, name: str, reduce: Callable[..., NDArray[Any]] = np.mean, shares: str = "") -> NDArray[Any]:
    """A variable at each run's end, reduced over all other axes; NaN in logs of before it was measured.

    Args:
        data: The log of a training.
        name: The variable.
        reduce: Over layers, heads or depths.
        shares: The variable to take where sinks are by shares.

    Returns:
        float[run].
    """
    chosen = shares if shares and by_shares(data) else name
    if chosen not in data:
        return np.full(data.sizes["run"], np.nan)
    values = end(data, data[chosen].values)
    return np.asarray(reduce(values, axis=tuple(range(1, values.ndim))))


def _sink_on(place: int, data: xarray.Dataset) -> NDArray[Any]:
    """Percentage of heads and sequences that sink on this token (Gu et al. 2025)."""
    return end(data, sinks(data))[:, place] if data.sizes["key"] > place else np.full(data.sizes["run"], np.nan)


def ended(label: str, name: str, reduce: Callable[..., NDArray[Any]] = np.mean, shares: str = "", **facts: Any) -> Measure:
    """Return the measure of a variable `at_end`. facts: further attributes of `Measure`."""
    return Measure(label, lambda data: at_end(data, name, reduce, shares), **facts)


UNIT = (0.0, 1.0)
NATS: dict[str, Any] = {"unit": "nats", "whole": False}
# The measures that a table may name. Disparity and effective rank are Li et al.'s (2026), the spike is the largest |h| over the
# median |h| of the same state, and what token 1 writes does not change with the scale of unnormalised weights.
MEASURES: dict[str, Measure] = {
    **{f"sink_{place + 1}": percentage(f"Sink_{place + 1} (%)", partial(_sink_on, place), note=SINKS) for place in range(KEYS)},
    "sink_bias": percentage("Sink_* (%)", lambda data: 100 * at_end(data, "sink_bias", shares="sink_bias_share"), note=SINKS),
    "first_share": ended("share of token 1, mean over heads", "received", shares="share", range=UNIT),
    "strongest_weight": ended("weight on token 1, strongest head", "received", np.max, "share", range=UNIT),
    "column_sum": ended("weight on token 1, mean over heads", "received"),
    "written": ended("norm of what token 1 writes over the head's output, mean over heads", "written"),
    "valid_loss": ended("valid loss (nats)", "loss", **NATS),
    "train_loss": ended("train loss (nats)", "train_loss", **NATS),
    "perplexity": Measure("perplexity", lambda data: np.exp(at_end(data, "loss"))),
    "token_norm_ratio": ended("norm of token 1 over others, largest over depths", "norm_ratio", np.max, log=True),
    "value_ratio": ended("norm of token 1's value over others', smallest over layers", "value_ratio", np.min, log=True),
    "largest_mean": ended("largest activation, mean over depths", "largest", log=True),
    "spike": ended("largest activation over the median, largest over depths", "spike", np.max, log=True),
    "kurtosis": ended("excess kurtosis, largest over layers", "kurtosis", np.max),
    "effective_rank": ended("effective rank, mean over layers", "effective_rank", log=True),
    "dimension_disparity": ended("dimension disparity, mean over layers", "disparity", log=True),
    "gradient_norm": ended("norm of the gradient", "gradient_norm", log=True),
}


def steps_to_loss(read: Numbers, first: TrainedModels) -> list[Row]:
    """Number of steps until the runs of every row reach the last held-out loss of the run of the same seed in the first row."""
    if first.name not in read:
        return []
    rows, measure = [], f"steps to the last loss of {first.name}"
    for name, data in read.trained.items():
        each = steps_to(data, read.data(first.name))
        known, reached = each[~np.isnan(each)], each[np.isfinite(each)]
        some = f"{reached.mean():.4g} in {len(reached)} of {len(known)}, else never" if len(reached) else "never"
        shown = read.interval(each) if len(reached) == len(known) else alone(some)
        rows += [Row(name, MODELS, measure, shown), *run_rows(data, name, measure, each)]
    return rows


def steps_to(data: xarray.Dataset, base: xarray.Dataset) -> NDArray[Any]:
    """Number of steps until each run reaches the final held-out loss of the run of the same seed in `base`: float[run].

    The loss is interpolated linearly between evaluations. inf: never that low; NaN: one of the two runs is not finished.
    """
    goals = dict(zip(base["run"].values, at_end(base, "loss"), strict=True))
    reached = np.full(data.sizes["run"], np.nan)
    for run, (seed, last) in enumerate(zip(data["run"].values, at_end(data, "loss"), strict=True)):
        goal, known = float(goals.get(seed, np.nan)), np.isfinite(data["loss"].values[run])
        if np.isfinite(goal) and np.isfinite(last):
            steps, losses = data["step"].values[run, known], data["loss"].values[run, known]
            below = np.flatnonzero(losses <= goal)
            around = slice(max(below[0] - 1, 0), below[0] + 1) if len(below) else slice(0)
            reached[run] = np.interp(-goal, -losses[around], steps[around]) if len(below) else np.inf
    return reached
