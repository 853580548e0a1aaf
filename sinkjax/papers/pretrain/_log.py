"""The log of a training as labelled arrays: every evaluation of every run, and how each run ended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sinkjax.train.config import ALL_STEPS, DIVERGED
from sinkjax.train.log import LOG, read
from sinkjax.train.loop import SUMMARY

if TYPE_CHECKING:
    import xarray

    from sinkjax.tasks import Trained

GOING = "going on"  # the outcome of a run that is not finished
ABOUT = ("run", "seed", "learning_rate", "variant", "status")  # entries of a line that are not measurements
DIMS = {  # axes of measurements with more than one number at each evaluation
    "sink": ("key",),
    "sink_share": ("key",),
    "received": ("layer", "head"),
    "share": ("layer", "head"),
    "received_bias": ("layer", "head"),
    "norm_ratio": ("depth",),
    "value_ratio": ("layer",),
    "largest": ("depth",),
    "effective_rank": ("layer",),
    "disparity": ("layer",),
    "kurtosis": ("layer",),
    "written": ("layer", "head"),
}


def measure(trained: Trained) -> xarray.Dataset:
    """Loss, sinks, norms and activations on held-out blocks at every evaluation of every run."""
    return of_log(trained.folder)


def so_far(folder: Path) -> xarray.Dataset | None:
    """The evaluations of an unfinished training; None before the first."""
    log = folder / LOG
    if not log.is_file() or b"\n" not in log.read_bytes() or not read(folder)[1]:  # it may exist and be empty
        return None
    return of_log(folder)


def of_log(folder: Path) -> xarray.Dataset:
    """The log of a training: name -> float[run, point, ...], NaN after a run's end and for numbers that are not finite.

    Only of what all evaluations have: runs of an earlier version may lack a measurement.

    run: the seeds. step [run, point]: of the evaluations. outcome, steps [run]: how it ended, and after how many updates.
    Errors: no log.
    """
    import xarray

    first, lines = read(folder)
    runs = [[line for line in lines if line["run"] == run["run"]] for run in first["runs"]]
    points = max(map(len, runs))
    names = [name for name in lines[0] if name not in ABOUT and all(name in line for line in lines)]
    data: dict[str, object] = {}
    for name in names:
        shape = np.shape(lines[0][name])
        values = np.full((len(runs), points, *shape), np.nan)
        for number, evaluations in enumerate(runs):
            if evaluations:  # none of a run whose first line was cut off
                values[number, : len(evaluations)] = [np.array(line[name], float) for line in evaluations]
        dims = DIMS.get(name, ())
        more = dims if len(dims) == len(shape) else tuple(f"{name}_{axis}" for axis in range(len(shape)))
        data[name] = (("run", "point", *more), values)
    ends = [evaluations[-1] if evaluations else {"step": 0, "status": GOING} for evaluations in runs]
    data["outcome"] = ("run", [_outcome(end, first["config"]["steps"]) for end in ends])
    data["steps"] = ("run", [end["step"] for end in ends])
    cost = folder / SUMMARY
    milliseconds = json.loads(cost.read_text(encoding="utf-8"))["milliseconds_per_step_of_a_run"] if cost.is_file() else None
    about = {name: first.get(name) for name in ("config", "parameters", "data", "devices", "versions", "intervals_over")}
    return xarray.Dataset(
        data, {"run": [run["seed"] for run in first["runs"]]}, {"training": {**about, "milliseconds": milliseconds}}
    )


def _outcome(end: Mapping[str, object], steps: int) -> str:
    if end["status"] == DIVERGED:
        return DIVERGED
    return ALL_STEPS if end["step"] == steps else GOING
