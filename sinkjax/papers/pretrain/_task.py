"""The rows of a table of pretraining, each a training with a few fields changed, and its log as labelled arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import xarray

from sinkjax.config_files import documents
from sinkjax.config_files.checks import at_least, refuse
from sinkjax.errors import SinkjaxError, one_of
from sinkjax.study import TrainingSpec, Trains
from sinkjax.tasks import registry
from sinkjax.train.config import ALL_STEPS, DIVERGED
from sinkjax.train.config import Training as TaskConfig
from sinkjax.train.log import LOG, read, step_cost
from sinkjax.train.trained import Trained

GOING = "going on"  # the outcome of a run that is not finished
ABOUT = ("run", "seed", "learning_rate", "variant", "status")  # entries of a line that are not measurements
DIMS: dict[str, tuple[str, ...]] = {  # axes of measurements with more than one number at each evaluation
    **dict.fromkeys(("sink", "sink_share"), ("key",)),
    **dict.fromkeys(("received", "share", "received_bias", "written"), ("layer", "head")),
    **dict.fromkeys(("norm_ratio", "largest"), ("depth",)),
    **dict.fromkeys(("value_ratio", "effective_rank", "disparity", "kurtosis"), ("layer",)),
}
OVERRIDES = ("steps", "text", "micro_batch", "mesh")  # settings of a study that replace fields of its size


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

    Errors: no log; a damaged log or summary.
    """
    return of_lines(*read(folder), step_cost(folder))


def of_lines(first: Mapping[str, Any], lines: Sequence[Mapping[str, Any]], milliseconds: float | None = None) -> xarray.Dataset:
    """The lines of a log as `of_log` returns them. milliseconds: the time of a step of a run.

    Only measurements that all evaluations have: runs of an earlier version may lack one.

    run: the seeds. step [run, point]: steps of the evaluations. outcome, steps [run]: how the run ended, and its updates.
    """
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
    about = {name: first.get(name) for name in ("config", "parameters", "data", "devices", "versions", "intervals_over")}
    seeds = [run["seed"] for run in first["runs"]]
    return xarray.Dataset(data, {"run": seeds}, {"training": {**about, "milliseconds": milliseconds}})


def _outcome(end: Mapping[str, object], steps: int) -> str:
    return DIVERGED if end["status"] == DIVERGED else ALL_STEPS if end["step"] == steps else GOING


@dataclass(frozen=True, kw_only=True)
class Pretraining(Trains):
    """Settings of every table of pretraining."""

    seeds: int = 1
    """runs of each row, each with its own initialisation and order of the data"""
    size: SizeName = "mini"
    """size of models and trainings (`sinkjax/papers/pretrain/sizes.yaml`)"""
    steps: int | None = None
    """training steps of a run; if none, the size's"""
    text: str | None = None
    """training text: "packaged", "chats", a file, a folder or the hub id of a data set; if none, the size's"""
    micro_batch: int | None = None
    """sequences whose gradient is computed at a time; if none, as for the size"""
    mesh: tuple[int, int] | None = field(default=None, metadata=documents.CHOICE)
    """devices of one run: the number that share the sequences, and the number that share the matrices; if none, one"""

    def check(self) -> None:
        at_least(self, steps=1, micro_batch=1)
        one_of("size", self.size, SIZES)


def spec(
    config: Pretraining, name: str, changes: Mapping[str, Any], times: Mapping[str, float], sizes: Sequence[str] = ()
) -> TrainingSpec | None:
    """The training of a row; None if the study's size does not have the row. Errors: fields that do not fit, with its name."""
    if sizes and config.size not in sizes:
        return None
    stated = training(config, name, changes, times)
    try:
        task = registry.task(stated)
    except SinkjaxError as error:
        raise SinkjaxError(f"row {name}: {error}") from None
    (variant,) = task.variants
    return TrainingSpec(name, stated, task.model(variant), measure, so_far)


def training(config: Pretraining, name: str, changes: Mapping[str, object], times: Mapping[str, float]) -> TaskConfig:
    """The fields of the size, of the study and of the row. Errors: fields that do not fit."""
    what, size = f"row {name}", SIZES[config.size]
    stated: dict[str, object] = {"seed": config.seed, "seeds": config.seeds, "dtype": config.dtype}
    stated |= {field: value for field in OVERRIDES if (value := getattr(config, field)) is not None}
    values = {**size.fields, **stated, **changes}
    cls = registry.config_type(size.task)
    base = documents.build(cls, values, what)
    scaled = {field: _times(base, field, factor, what) for field, factor in times.items()}
    found: TaskConfig = documents.build(cls, {**values, **scaled}, what)
    refuse(len(found.learning_rates) != 1, f"{what}: a row has one learning rate, not {len(found.learning_rates)}")
    return found


def _times(base: TaskConfig, name: str, factor: float, what: str) -> float | tuple[float, ...] | None:
    """A field of the size times a factor, rounded and at least 1 if it is an integer; for a window not stated, the context.

    A width of heads that is not stated stays so: it follows from the model's width.
    """
    value = getattr(base, name, None)
    if name == "head_dim" and value is None:
        return None
    if name == "window" and value is None:
        value = vars(base)["context"]
    if isinstance(value, tuple):
        return tuple(factor * entry for entry in value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SinkjaxError(f"{what}: times {name} needs a number to be multiplied, and the size has {value!r}")
    return max(1, round(factor * value)) if isinstance(value, int) else factor * value


# Sizes of studies: named sets of fields of a training, read from `sizes.yaml`.


SizeName = Literal["mini", "340k", "60m", "1b", "152m", "backcopy", "backcopy-mini", "mini-softmax", "smollm2", "chats"]


@dataclass(frozen=True)
class Size:
    """task: its name for `sinkjax train`. fields: its config's fields. about: their source."""

    task: str
    fields: Mapping[str, object]
    about: str


def _read(file: Path) -> dict[str, Size]:
    """Every size by its name. A list in the file is a tuple of the config."""
    found = {}
    for name, entry in documents.parse(file.read_text(encoding="utf-8"), file.name)["sizes"].items():
        fields = {key: tuple(value) if isinstance(value, list) else value for key, value in entry["fields"].items()}
        found[name] = Size(entry["task"], fields, entry["about"])
    return found


SIZES = _read(Path(__file__).with_name("sizes.yaml"))
