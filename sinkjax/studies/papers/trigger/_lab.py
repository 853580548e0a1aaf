"""What the studies of the trigger task share: their settings, the models that they train, what is measured on each run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import intervals
from sinkjax.analysis.intervals import Interval
from sinkjax.analysis.rules import Quantity, in_digits, quantity
from sinkjax.analysis.summary import LEVEL, Row
from sinkjax.config_files.checks import above, at_least, each_once, share
from sinkjax.errors import SinkjaxError
from sinkjax.studies.config import Trains
from sinkjax.tasks.trigger.config import TriggerTraining

TRIGGER, OTHERS, EVERY = "trigger", "others", "every"  # rows of attention, and of a loss
IDENTITY = "identity edit: 0 added to BOS's logit"
DIVERGED = "diverged"  # the outcome of a run whose loss or gradient was not finite
SMALLEST = 4  # coordinates of a token: two flags, noise and the bias channel


@dataclass(frozen=True, kw_only=True)
class Trials(Trains):
    """What every study of the trigger task has to state; the defaults are the paper's."""

    steps: int = 50_000
    """of a run, unless it is done before"""
    width: int = 16
    """coordinates of a token, n"""
    length: int = 16
    """tokens of a sequence, BOS included, L"""
    batch: int = 128
    """sequences of a step, all of them new"""
    rate: float = 1e-3
    """of Adam's steps"""
    tolerance: float = 5e-3
    """a run is done when no output of a batch is further from its target"""
    evaluate_every: int = 50
    """steps between two points of the learning curves"""
    sequences: int = 10_000
    """held-out sequences of loss and attention, their triggers drawn as in training"""
    shared_data: bool = False
    """the same data for all runs of a model: intervals are then over initialisations only"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, steps=1, width=SMALLEST, length=4, batch=1, evaluate_every=1, sequences=1)
        above(self, rate=0, tolerance=0)


@dataclass(frozen=True, kw_only=True)
class Lab(Trials):
    """A study that maps its models' attention."""

    map_sequences: int = 1000
    """held-out sequences of maps and interventions"""
    trigger_position: int = 7
    """where the trigger of those stands, counted from 0 (the paper's position 8)"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, map_sequences=2)
        if not 2 <= self.trigger_position < self.length:
            raise SinkjaxError(f"trigger_position must lie from 2 to {self.length - 1}, not {self.trigger_position}")


@dataclass(frozen=True, kw_only=True)
class Edited(Lab):
    """A study that edits its trained models."""

    moves: tuple[int, ...] = (4, 12)
    """positions with which BOS changes places, counted from 0"""

    def __post_init__(self) -> None:
        super().__post_init__()
        each_once(self, "moves")
        for place in self.moves:
            if not 0 < place < self.length or place == self.trigger_position:
                raise SinkjaxError(f"moves must lie from 1 to {self.length - 1} and off the trigger, and holds {place}")


@dataclass(frozen=True, kw_only=True)
class Judged(Lab):
    """A study that asks of each run whether it sinks and whether it solves the task."""

    sinks: float = 0.5
    """mean weight on BOS, or share of it, in the rows of other tokens than the trigger, from which on a head sinks"""
    solved: float = 1.0
    """per cent of the loss of a model that writes nothing, below which a run has solved the task"""

    def __post_init__(self) -> None:
        super().__post_init__()
        share(self, "sinks")
        above(self, solved=0)


SOFTMAX, RELU = "softmax", "relu"
LABELS = {SOFTMAX: "softmax", RELU: "ReLU / max(i, 1)"}
NORMALISERS: dict[str, dict[str, Any]] = {SOFTMAX: {"normalisers": ("softmax",)}, RELU: {"normalisers": ("relu-index",)}}


@dataclass(frozen=True)
class Model:
    """A model of a study. name: of its training and store. label: in words. changes: fields of its training, but for those that
    the study states for all."""

    name: str
    label: str
    changes: Mapping[str, Any] = field(default_factory=dict)


def training(config: Trials, changes: Mapping[str, Any]) -> TriggerTraining:
    """A training as a study states it, with some fields changed. Errors: what does not fit, by its name."""
    stated = {
        name: getattr(config, name) for name in ("seed", "seeds", "steps", "batch", "tolerance", "width", "length", "dtype")
    }
    stated |= {"learning_rates": (config.rate,), "eval_every": config.evaluate_every, "shared_data": config.shared_data}
    return TriggerTraining(**{**stated, **changes})


DONE = "converged"  # the outcome of a run that met the stopping rule
MODELS, RUNS = "models", "runs"  # groups of rows
MILLION = 1e6

SOLVED, STEPS = "runs that met the stopping rule (%)", "steps until then"
LOSS, ERROR = "held-out loss (millionths)", "largest held-out error"
LEFT = "loss left of that of an idle model (%)"
BOS, BOS_SHARE = "weight on BOS, other rows", "share of BOS, other rows"
BOS_TRIGGER, BOS_TRIGGER_SHARE = "weight on BOS, trigger row", "share of BOS, trigger row"
ELSEWHERE, ELSEWHERE_TRIGGER = "weight elsewhere, other rows", "weight elsewhere, trigger row"
UNEVEN = "largest difference from 1/j on tokens 1 to j, trigger row"


def mass(data: Any, name: str, rows: str, target: str) -> Any:
    """A mass of every run, layer and head."""
    return data[name].sel(rows=rows, target=target)


def _mean(name: str, rows: str, target: str) -> Callable[[Any], NDArray]:
    """Of each run: its mass, mean over layers and heads."""
    return lambda data: mass(data, name, rows, target).mean(("layer", "head")).values


# name of a measure, with its unit -> float[run] of a training's dataset; NaN where a run diverged, inf where it never came so far
MEASURES: dict[str, Callable[[Any], NDArray]] = {
    SOLVED: lambda data: 100.0 * (data["outcome"].values == DONE),
    STEPS: lambda data: np.where(data["outcome"].values == DONE, data["steps"].values, np.inf),
    LOSS: lambda data: MILLION * data["loss"].sel(error_rows=EVERY).values,
    LEFT: lambda data: 100 * (data["loss"].sel(error_rows=EVERY) / data["null_loss"]).values,
    ERROR: lambda data: data["largest_error"].values,
    BOS: _mean("weight", OTHERS, "bos"),
    BOS_SHARE: _mean("share", OTHERS, "bos"),
    ELSEWHERE: _mean("weight", OTHERS, "elsewhere"),
    BOS_TRIGGER: _mean("weight", TRIGGER, "bos"),
    BOS_TRIGGER_SHARE: _mean("share", TRIGGER, "bos"),
    ELSEWHERE_TRIGGER: _mean("weight", TRIGGER, "elsewhere"),
    UNEVEN: lambda data: data["uneven"].mean(("layer", "head")).values,
}


def values(data: Any, measure: str) -> NDArray:
    """A measure of each run: float[run]."""
    return np.asarray(MEASURES[measure](data), np.float64)


def interval(data: Any, measure: str, seed: int) -> Interval:
    """A measure, mean over the runs that have it."""
    return intervals.interval(values(data, measure), level=LEVEL, seed=seed)


def rows(stores: Mapping[str, Any], labels: Mapping[str, str], measures: Sequence[str], seed: int) -> list[Row]:
    """A row for each model and measure, and then one for each of its runs. labels: name of a training -> name of its model."""
    models, runs = [], []
    for name, label in labels.items():
        data = stores[name]
        for measure in measures:
            each = values(data, measure)
            models.append(Row(label, MODELS, measure, intervals.interval(each, level=LEVEL, seed=seed)))
            runs += [
                Row(f"{label}, seed {run}", RUNS, measure, alone(value))
                for run, value in zip(data["run"].values, each, strict=True)
            ]
    return models + runs


def alone(value: float) -> Interval:
    """A number that stands for itself; None where it is not finite."""
    return intervals.interval(np.array([value]))


def measured(name: str, measure: str, what: str = "", unit: str = "") -> Quantity:
    """A measure of one model, mean over its runs. name: of its training."""
    return quantity(what or f"{measure} ({name})", lambda results: interval(results[name], measure, results.config.seed), unit)


def done(name: str, label: str) -> Quantity:
    """How many runs of a model met the stopping rule."""

    def count(results: Any) -> float:
        return float((results[name]["outcome"].values == DONE).sum())

    return quantity(f"{label}: runs that met the stopping rule", count)


def notes(config: Trials) -> tuple[str, ...]:
    """What the numbers of every study mean."""
    return (
        f"The task: {config.length} tokens of {config.width} numbers, the first one BOS; at the trigger, the mean of all tokens"
        " after BOS up to and with the trigger; elsewhere nothing. Positions count from 0, but where the paper is quoted.",
        "A mass is a mean over held-out sequences and rows: the trigger's, or those of all tokens but BOS and the trigger. A"
        " weight is what was used; a share is its part of its row's absolute weight, as rows of unnormalised attention do not sum"
        " to 1. A row that is nearly 0 has shares too, so a share says nothing of how much is written.",
        f"A run is done once no output of a training batch (all of it new) is off by {config.tolerance:g} or more. Means and"
        " bootstrap 95 % intervals are over runs, also those that are not done; runs that diverged are left out and named.",
    )


def unfinished(stores: Mapping[str, Any], labels: Mapping[str, str]) -> Iterator[str]:
    """For each model of which not all runs are done, the seeds of the others and where they ended."""
    for name, label in labels.items():
        data = stores[name]
        outcome = data["outcome"].values
        ends = [
            f"seed {run}, {'diverged at' if end == DIVERGED else f'largest error {in_digits(error)} after'} step {steps:,}"
            for run, end, steps, error in zip(data["run"].values, outcome, data["steps"].values, values(data, ERROR), strict=True)
            if end != DONE
        ]
        if ends:
            ends = [*ends[:8], f"and {len(ends) - 8} more"] if len(ends) > 8 else ends
            count = f"{(outcome == DONE).sum()} of {len(outcome)} runs"
            yield f"{label}: {count} met the stopping rule. Others: {'; '.join(ends)}."


def provenance(stores: Mapping[str, Any]) -> dict[str, Any]:
    """What a reader has to know of how the stores were made."""
    made = next(iter(stores.values())).attrs["sweep"]
    runs = ", ".join(f"{name} {data.sizes['run']}" for name, data in stores.items())
    return {
        "runs": runs,
        "seeds": f"{int(min(data['run'].min() for data in stores.values()))} to"
        f" {int(max(data['run'].max() for data in stores.values()))}",
        "dtype": made["dtype"],
        "device": made["devices"],
        "versions": ", ".join(f"{name} {version}" for name, version in made["versions"].items()),
    }
