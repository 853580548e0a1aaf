"""What the studies of the trigger task share: settings, models, measures of each run, rows, notes, and their declaration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import intervals
from sinkjax.analysis.estimates import Quantity, in_digits, quantity
from sinkjax.analysis.summary import Row
from sinkjax.config_files.checks import above, at_least, each_once, share
from sinkjax.errors import SinkjaxError
from sinkjax.studies.config import Trains
from sinkjax.studies.results import Results
from sinkjax.tasks.trigger.config import TriggerTraining

TRIGGER, OTHERS, EVERY = "trigger", "others", "every"  # rows of attention, and of a loss
IDENTITY = "identity edit: 0 added to BOS's logit"
DIVERGED = "diverged"  # the outcome of a run whose loss or gradient was not finite
SMALLEST = 4  # coordinates of a token: two flags, noise and the bias channel


@dataclass(frozen=True, kw_only=True)
class Trials(Trains):
    """What every study of the trigger task states; the defaults are the paper's."""

    steps: int = 50_000
    """training steps of a run, at most"""
    width: int = 16
    """coordinates of a token, n"""
    length: int = 16
    """tokens of a sequence, BOS included, L"""
    batch: int = 128
    """sequences of a step, all of them fresh"""
    rate: float = 1e-3
    """learning rate of Adam"""
    tolerance: float = 5e-3
    """a run is done when every output on a batch is closer than this to its target"""
    evaluate_every: int = 50
    """steps between two points of the learning curves"""
    sequences: int = 10_000
    """held-out sequences for loss and attention, with triggers drawn as in training"""
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
    """held-out sequences for maps and edits"""
    trigger_position: int = 7
    """position of their trigger, counted from 0 (the paper's position 8)"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, map_sequences=2)
        if not 2 <= self.trigger_position < self.length:
            raise SinkjaxError(f"trigger_position must lie from 2 to {self.length - 1}, not {self.trigger_position}")


@dataclass(frozen=True, kw_only=True)
class Edited(Lab):
    """A study that edits its trained models."""

    moves: tuple[int, ...] = (4, 12)
    """positions with which BOS is swapped, counted from 0"""

    def __post_init__(self) -> None:
        super().__post_init__()
        each_once(self, "moves")
        for place in self.moves:
            if not 0 < place < self.length or place == self.trigger_position:
                raise SinkjaxError(f"moves must lie from 1 to {self.length - 1} and off the trigger, but contains {place}")


@dataclass(frozen=True, kw_only=True)
class Judged(Lab):
    """A study that decides for each run whether it sinks and whether it solves the task."""

    sinks: float = 0.5
    """smallest mean weight on BOS (or share of it), in rows other than BOS's and the trigger's, of a head that sinks"""
    solved: float = 1.0
    """a run has solved the task when its loss is below this percentage of that of a model that writes nothing"""

    def __post_init__(self) -> None:
        super().__post_init__()
        share(self, "sinks")
        above(self, solved=0)


SOFTMAX, RELU = "softmax", "relu"
LABELS = {SOFTMAX: "softmax", RELU: "ReLU / max(i, 1)"}
NORMALISERS: dict[str, dict[str, Any]] = {SOFTMAX: {"normalisers": ("softmax",)}, RELU: {"normalisers": ("relu-index",)}}


@dataclass(frozen=True)
class Model:
    """A model of a study: the name of its training and store, its label, and the fields of its training that differ."""

    name: str
    label: str
    changes: Mapping[str, Any] = field(default_factory=dict)


def training(config: Trials, changes: Mapping[str, Any]) -> TriggerTraining:
    """The training that a study states, with some fields changed."""
    shared = ("seed", "seeds", "steps", "batch", "tolerance", "width", "length", "dtype", "shared_data")
    stated = {name: getattr(config, name) for name in shared}
    stated |= {"learning_rates": (config.rate,), "eval_every": config.evaluate_every}
    return TriggerTraining(**{**stated, **changes})


def labels_of(models: Iterable[Model]) -> dict[str, str]:
    """Name of each model's store -> its label."""
    return {model.name: model.label for model in models}


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
WRITTEN = "norm of what BOS writes, other rows, in whole rows"
PART, PART_ELSEWHERE = "weight on BOS, other rows, in whole rows", "weight elsewhere, other rows, in whole rows"
NOTHING = 1e-8  # added to a whole row's weight, so that a head without any has none of it on BOS


def on_bos(data: Any, kind: str) -> NDArray:
    """What a head does with BOS: float[run, layer, head].

    kind: "weight", the mean weight in the other rows; "share", that of the shares of these rows; "part", the weight in units of a
    whole row; "written", what BOS writes over what the head does, NaN in stores of before it was measured.
    """
    if kind == "part":
        return in_whole_rows(data, "bos")
    if kind == "written":
        if kind not in data:
            return np.full([data.sizes[axis] for axis in ("run", "layer", "head")], np.nan)
        return np.asarray(data[kind].transpose("run", "layer", "head").values)
    return np.asarray(data[kind].sel(rows=OTHERS, target="bos").transpose("run", "layer", "head").values)


def in_whole_rows(data: Any, target: str) -> NDArray:
    """Weight on a target in the other rows over that of a whole row, the trigger's or another, whichever is more.

    It is the weight itself where rows sum to 1, and does not change with the scale of the weights. float[run, layer, head]
    """
    weight = data["weight"].transpose("rows", "target", "run", "layer", "head")
    whole = weight.sum("target").max("rows")
    return np.asarray((weight.sel(rows=OTHERS, target=target) / (whole + NOTHING)).values)


def _mean(name: str, rows: str, target: str) -> Callable[[Any], NDArray]:
    """The mean of a mass over layers and heads, for each run."""
    return lambda data: data[name].sel(rows=rows, target=target).mean(("layer", "head")).values


# measure -> float[run] from the dataset of a training; NaN for a run that diverged, inf for one that did not get that far
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
    WRITTEN: lambda data: on_bos(data, "written").mean(axis=(1, 2)),
    PART: lambda data: on_bos(data, "part").mean(axis=(1, 2)),
    PART_ELSEWHERE: lambda data: in_whole_rows(data, "elsewhere").mean(axis=(1, 2)),
}


def values(data: Any, measure: str) -> NDArray:
    """A measure of each run: float[run]."""
    return np.asarray(MEASURES[measure](data), np.float64)


def all_but(*measures: str) -> tuple[str, ...]:
    """The names of the other measures."""
    return tuple(name for name in MEASURES if name not in measures)


def rows(results: Results, labels: Mapping[str, str], measures: Sequence[str]) -> list[Row]:
    """A row for each model (`labels`: name of its store -> its label) and measure, then one for each of its runs."""
    models, runs = [], []
    for name, label in labels.items():
        for measure in measures:
            each = values(results[name], measure)
            models.append(Row(label, MODELS, measure, results.interval(each)))
            runs += run_rows(results[name], label, measure, each)
    return models + runs


def run_rows(data: Any, label: str, measure: str, each: NDArray) -> list[Row]:
    """A row for each run of a model. each: float[run]; what is not finite is left empty."""
    seeds = data["run"].values
    return [
        Row(f"{label}, seed {seed}", RUNS, measure, intervals.interval(np.array([value])))
        for seed, value in zip(seeds, each, strict=True)
    ]


def measured(name: str, measure: str, what: str = "") -> Quantity:
    """A measure of one model, mean over its runs."""
    return quantity(what or f"{measure} ({name})", lambda results: values(results[name], measure))


def shared_notes(config: Trials) -> tuple[str, ...]:
    """How to read the numbers of every study of the trigger task."""
    return (
        f"""The task: {config.length} tokens of {config.width} numbers, of which the first is BOS. At the trigger the target is
        the mean of all tokens after BOS up to and including the trigger; elsewhere it is zero. Positions count from 0, except
        where the paper is quoted.""",
        """A mass is a mean over held-out sequences and over the trigger's rows or the other rows (those of all tokens but BOS
        and the trigger). The weight is the attention weight itself. The share is its fraction of the row's absolute weight,
        as rows of unnormalised attention do not sum to 1; shares are defined even for rows that are nearly 0, and do not say
        how much is written.""",
        """In unnormalised attention a sink is judged by two numbers that, unlike weights, do not change when a head's queries
        are multiplied by a number and its values are divided by it: the weight on BOS in units of a whole row (of the trigger's
        row or of another, whichever has more weight; for softmax it is the weight itself), and the mean norm of a_i0 v_0 W_O in
        the other rows over that of all that the head writes, in such units. The second one says whether attention to BOS has an
        effect, and is small for a softmax head too if BOS's value is. What BOS writes in the trigger's row is left out: there
        it can do the work of the trigger's flag.""",
        f"""A run is done when no output on a fresh training batch is off by {config.tolerance:g} or more. Means and 95 %
        intervals are over all runs, each with a seed of its own, done or not, except those that diverged, which are listed. A
        claim needs 8 runs.""",
    )


def unfinished(stores: Mapping[str, Any], labels: Mapping[str, str]) -> Iterator[str]:
    """For each model with runs that are not done, the seeds of these and where they ended."""
    for name, label in labels.items():
        data = stores[name]
        outcome, steps, seeds = (data[what].values for what in ("outcome", "steps", "run"))
        errors = values(data, ERROR) if "largest_error" in data else None
        ends = []
        for run in np.flatnonzero(outcome != DONE):
            end = "not done after" if errors is None else f"largest error {in_digits(errors[run])} after"
            ends.append(f"seed {seeds[run]}, {'diverged at' if outcome[run] == DIVERGED else end} step {steps[run]:,}")
        if ends:
            listed = [*ends[:8], f"and {len(ends) - 8} more"] if len(ends) > 8 else ends
            count = f"{len(outcome) - len(ends)} of {len(outcome)} runs"
            yield f"{label}: {count} met the stopping rule. Others: {'; '.join(listed)}."


def provenance(stores: Mapping[str, Any]) -> dict[str, Any]:
    """How the stores were made."""
    from sinkjax.sweeps.identity import devices_in_words

    attributes = next(iter(stores.values())).attrs
    made = attributes["sweep"]
    seeds = np.concatenate([data["run"].values for data in stores.values()])
    return {
        "runs": ", ".join(f"{name} {data.sizes['run']}" for name, data in stores.items()),
        "seeds": f"{seeds.min()} to {seeds.max()}",
        "dtype": made["dtype"],
        "device": devices_in_words(attributes),
        "versions": ", ".join(f"{name} {version}" for name, version in made["versions"].items()),
    }
