"""Outcomes in the log of a training: a number for each run at its end, NaN for one that diverged or is not finished.

Sink_k counts tokens from 1, as the papers do; in arrays and files they count from 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis.intervals import Interval
from sinkjax.analysis.summary import LEVEL, Row
from sinkjax.checkpoints.load import open_checkpoint
from sinkjax.model.normalisers import NAMED
from sinkjax.study.claims import TrainedModels
from sinkjax.study.measures import Measure, percentage
from sinkjax.study.numbers import Stored
from sinkjax.study.trained import MODELS, run_rows
from sinkjax.train.config import ALL_STEPS

if TYPE_CHECKING:
    import xarray

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


def _sink_on(place: int) -> Callable[[xarray.Dataset], NDArray[Any]]:
    def of(data: xarray.Dataset) -> NDArray[Any]:
        """Percentage of heads and sequences that sink on this token (Gu et al. 2025)."""
        return end(data, sinks(data))[:, place] if data.sizes["key"] > place else np.full(data.sizes["run"], np.nan)

    return of


def _perplexity(data: xarray.Dataset) -> NDArray[Any]:
    found: NDArray[Any] = np.exp(at_end(data, "loss"))
    return found


UNIT = (0.0, 1.0)
# The measures that a table may name. Disparity and effective rank are Li et al.'s (2026), the spike is the largest |h| over the
# median |h| of the same state, and what token 1 writes does not change with the scale of unnormalised weights.
MEASURES: dict[str, Measure] = {
    **{f"sink_{place + 1}": percentage(f"Sink_{place + 1} (%)", _sink_on(place), note=SINKS) for place in range(KEYS)},
    "sink_bias": percentage("Sink_* (%)", lambda data: 100 * at_end(data, "sink_bias", shares="sink_bias_share"), note=SINKS),
    "first_share": Measure(
        "share of token 1, mean over heads", lambda data: at_end(data, "received", shares="share"), range=UNIT
    ),
    "strongest_weight": Measure(
        "weight on token 1, strongest head", lambda data: at_end(data, "received", np.max, "share"), range=UNIT
    ),
    "column_sum": Measure("weight on token 1, mean over heads", lambda data: at_end(data, "received")),
    "written": Measure(
        "norm of what token 1 writes over the head's output, mean over heads", lambda data: at_end(data, "written")
    ),
    "valid_loss": Measure("valid loss (nats)", lambda data: at_end(data, "loss"), unit="nats", whole=False),
    "train_loss": Measure("train loss (nats)", lambda data: at_end(data, "train_loss"), unit="nats", whole=False),
    "perplexity": Measure("perplexity", _perplexity),
    "token_norm_ratio": Measure(
        "norm of token 1 over others, largest over depths", lambda data: at_end(data, "norm_ratio", np.max), log=True
    ),
    "value_ratio": Measure(
        "norm of token 1's value over others', smallest over layers", lambda data: at_end(data, "value_ratio", np.min), log=True
    ),
    "largest_mean": Measure("largest activation, mean over depths", lambda data: at_end(data, "largest"), log=True),
    "spike": Measure(
        "largest activation over the median, largest over depths", lambda data: at_end(data, "spike", np.max), log=True
    ),
    "kurtosis": Measure("excess kurtosis, largest over layers", lambda data: at_end(data, "kurtosis", np.max)),
    "effective_rank": Measure("effective rank, mean over layers", lambda data: at_end(data, "effective_rank"), log=True),
    "dimension_disparity": Measure("dimension disparity, mean over layers", lambda data: at_end(data, "disparity"), log=True),
    "gradient_norm": Measure("norm of the gradient", lambda data: at_end(data, "gradient_norm"), log=True),
}


def steps_to_loss(read: Stored, first: TrainedModels) -> list[Row]:
    """Number of steps until the runs of every row reach the last held-out loss of the run of the same seed in the first row."""
    if not read.has(first.name):
        return []
    found = []
    for name, data in read.trained.items():
        each = steps_to(data, read.data(first.name))
        known, reached = each[~np.isnan(each)], each[np.isfinite(each)]
        shown: Interval = read.interval(each)
        if len(reached) < len(known):
            said = f"{reached.mean():.4g} in {len(reached)} of {len(known)}, else never" if len(reached) else "never"
            shown = Interval(None, None, None, 0, 0, LEVEL, "none", said)
        measure = f"steps to the last loss of {first.name}"
        found += [Row(name, MODELS, measure, shown), *run_rows(data, name, measure, each)]
    return found


def steps_to(data: xarray.Dataset, base: xarray.Dataset) -> NDArray[Any]:
    """Number of steps until each run reaches the final held-out loss of the run of the same seed in `base`: float[run].

    The loss is interpolated linearly between evaluations. inf: never that low; NaN: one of the two runs is not finished.
    """
    goals = dict(zip(base["run"].values, at_end(base, "loss"), strict=True))
    found, runs = [], (data["step"].values, data["loss"].values, at_end(data, "loss"))
    for seed, steps, losses, ended in zip(data["run"].values, *runs, strict=True):
        goal = float(goals.get(seed, np.nan))
        found.append(_reached(goal, steps, losses) if np.isfinite(goal) and np.isfinite(ended) else np.nan)
    return np.array(found)


def _reached(goal: float, steps: NDArray[Any], losses: NDArray[Any]) -> float:
    known = np.isfinite(losses)
    steps, losses = steps[known], losses[known]
    below = np.flatnonzero(losses <= goal)
    if not len(below):
        return np.inf
    around = slice(max(below[0] - 1, 0), below[0] + 1)
    return float(np.interp(-goal, -losses[around], steps[around]))
