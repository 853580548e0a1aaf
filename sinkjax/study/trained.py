"""Studies that train their own models: training, and contrasts, premises and rows over the seeds.

A measure of a trained model takes the store of a training and returns float[run], a number for each seed: NaN for a run that
diverged or is not finished, inf for a step that was never reached.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import intervals
from sinkjax.analysis.estimates import Absent
from sinkjax.analysis.intervals import FEWEST, Interval
from sinkjax.analysis.summary import NOT_COMPARED, Row
from sinkjax.config_files import documents
from sinkjax.config_files.locations import Location
from sinkjax.errors import unknown
from sinkjax.runtime import processes
from sinkjax.runtime.progress import duration
from sinkjax.study.contrasts import Contrast, Parts, facts_of
from sinkjax.study.folder import is_complete, store_path, write_whole
from sinkjax.study.lab import Lab
from sinkjax.study.measures import Measure, read_measure
from sinkjax.study.numbers import Numbers, devices_of
from sinkjax.study.premises import Premise
from sinkjax.study.registry import Chosen
from sinkjax.study.work import TrainedModels, TrainingSpec
from sinkjax.sweeps.header import HARDWARE, IDENTITY
from sinkjax.tasks import registry, train
from sinkjax.train.config import ALL_STEPS, DIVERGED
from sinkjax.train.log import LOG, SUMMARY, read, step_cost
from sinkjax.train.runs import table
from sinkjax.version import __version__

if TYPE_CHECKING:
    import xarray

MODELS, RUNS, SEEDS, PAPER = "models", "runs", "seeds", "paper"
FINISHED = (ALL_STEPS, "converged")  # outcomes of runs that came to their end
LISTED = 8  # seeds that a sentence names


def of_runs(numbers: Numbers, measure: Measure, training: TrainedModels) -> dict[int, float]:
    """Return a measure of each run of a training, by its seed; only finite numbers.

    Raises:
        Absent: The training was not run, or no run of it has the number.
    """
    if training.name not in numbers:
        raise Absent(f"{training.name} was not trained")
    data = numbers.data(training.name)
    pairs = zip(data["run"].values, read_measure(measure, data), strict=True)
    by_seed = {int(seed): float(value) for seed, value in pairs if np.isfinite(value)}
    if not by_seed:
        raise Absent(f"no run of {training.name} has finished with a finite {measure.name}")
    return by_seed


def versus(
    measure: Measure, training: TrainedModels, minus: TrainedModels | float = 0.0, whole: TrainedModels | None = None
) -> Contrast:
    """Return a measure of one training's models minus the same measure of another's, paired by seed, or minus a number.

    Args:
        measure: The compared measure; in logarithms if it has no upper bound.
        training: The training.
        minus: The training to subtract, or a number stated by the paper.
        whole: A training; the size is then a share of the excess of `training` over this one. None: a share of the measure of
            `training`; no share if a number is subtracted or if the measure has no baseline (a loss, a logarithm).
    """
    other = minus if isinstance(minus, TrainedModels) else None

    def parts(numbers: Numbers) -> Parts:
        runs = {one.name: of_runs(numbers, measure, one) for one in (training, other, whole) if one is not None}
        seeds = sorted(set.intersection(*(set(values) for values in runs.values())))
        if len(seeds) < FEWEST:
            raise Absent(
                f"{len(seeds)} seed{'s' * (len(seeds) != 1)} of {' and '.join(runs)} finished, and a verdict needs {FEWEST}"
            )
        of = {name: _scaled(measure, [values[seed] for seed in seeds]) for name, values in runs.items()}
        level = 0.0 if isinstance(minus, TrainedModels) else float(minus)
        subtracted = of[other.name] if other else _scaled(measure, [level] * len(seeds)) if level else np.zeros(len(seeds))
        shared = other is not None and not measure.log and measure.whole
        of_whole = of[training.name] - of[whole.name] if whole else of[training.name] if shared else None
        text = f"{measure.name}: {training.name}" + (f" minus {other.name if other else minus}" if other or level else "")
        (span, unit), why = facts_of(measure), "the model or number that is subtracted is the comparison"
        return Parts(of[training.name] - subtracted, None, of_whole, span, unit, text, uncontrolled=why)

    return parts


def _scaled(measure: Measure, values: list[float]) -> NDArray[Any]:
    return np.log(values) if measure.log else np.array(values)


def attains(measure: Measure, training: TrainedModels, least: float = -np.inf, most: float = np.inf) -> Premise:
    """Return the premise that a measure's mean over the runs of a training is at least, or at most, a cut-off of a paper."""

    def test(numbers: Numbers) -> tuple[bool, str]:
        mean = float(np.mean([*of_runs(numbers, measure, training).values()]))
        wanted = " and ".join(f"{side} {cut:g}" for side, cut in (("at least", least), ("at most", most)) if np.isfinite(cut))
        return bool(least <= mean <= most), f"{measure.name} of {training.name} is {mean:.3g}, and must be {wanted}"

    return Premise(test)


def specs(lab: Lab, config: Any) -> tuple[TrainingSpec, ...]:
    """Return the trainings of a study. Raises an error if `only` names another."""
    for name in config.only:
        if name not in lab.trainings:
            raise unknown("training", name, lab.trainings)
    wanted = config.only or lab.trainings
    found = ((name, one.spec) for name, one in lab.trainings.items())
    return tuple(dataclasses.replace(spec, wanted=name in wanted) for name, spec in found if spec is not None)


def rows(lab: Lab, numbers: Numbers) -> list[Row]:
    """Return a row for each training and measure, with the paper's number where it has any, and a row for each run."""
    table, runs = list[Row](), list[Row]()
    trainings = list(lab.trainings.values())
    for training in trainings:
        data, finished = numbers.trained.get(training.name), "not run"
        if lab.columns and data is not None:
            done = sum(str(outcome) in FINISHED for outcome in data["outcome"].values)
            finished = f"{done} of {max(data.sizes['run'], numbers.settings.seeds)}"
        if lab.columns:
            table.append(Row(training.label, MODELS, SEEDS, alone(finished)))
        for measure in lab.columns:
            shown, effect = alone("-"), NOT_COMPARED
            if data is not None:
                values = read_measure(measure, data)
                runs += run_rows(data, training.label, measure.name, values)
                if not np.isnan(values).all():
                    shown = numbers.interval(np.where(np.isfinite(values), values, np.nan))
                if training.compared and training is not trainings[0] and trainings[0].name in numbers:
                    effect = paired(numbers[trainings[0].name], data, measure, numbers)
            table.append(Row(training.label, MODELS, measure.name, shown, effect))
            if any(measure.name in other.paper for other in trainings):
                table.append(
                    Row(training.label, MODELS, f"{measure.name}, {PAPER}", alone(str(training.paper.get(measure.name, "-"))))
                )
    return table + runs


def alone(value: float | str) -> Interval:
    """A number without an interval, or words in its place."""
    if isinstance(value, str):
        return dataclasses.replace(NOT_COMPARED, note=value)
    return intervals.interval(np.array([float(value)]))


def run_rows(data: xarray.Dataset, title: str, measure: str, values: NDArray[Any]) -> list[Row]:
    """A row for each run of a training, without values that are not finite."""
    return [
        Row(f"{title}, seed {seed}", RUNS, measure, intervals.interval(np.array([value])))
        for seed, value in zip(data["run"].values, values, strict=True)
        if np.isfinite(value)
    ]


def paired(first: xarray.Dataset, second: xarray.Dataset, measure: Measure, numbers: Numbers) -> Interval:
    """Return the mean difference of a measure from the first training, over the seeds that both have."""
    before, after = (dict(zip(data["run"].values.tolist(), read_measure(measure, data), strict=True)) for data in (first, second))
    pairs = np.array([after[seed] - before[seed] for seed in after if seed in before])
    return intervals.interval(pairs[np.isfinite(pairs)], seed=numbers.settings.seed)


def status(lab: Lab, numbers: Numbers) -> Iterator[str]:
    """Yield sentences on trainings that were not run, and on runs that did not come to their end."""
    missing = [one.label for one in lab.trainings.values() if one.name not in numbers]
    if missing:
        yield f"{len(missing)} of {len(lab.trainings)} trainings were not run: {'; '.join(missing)}."
    for training in lab.trainings.values():
        if training.name in numbers and {"outcome", "steps"} <= set(numbers[training.name]):
            data, ends = numbers[training.name], dict[str, list[str]]()
            for seed, outcome, steps in zip(*(data[part].values for part in ("run", "outcome", "steps")), strict=True):
                if str(outcome) not in FINISHED:
                    how = f"{'diverged' if outcome == DIVERGED else outcome} at step {int(steps):,}"
                    ends.setdefault(how, []).append(str(seed))
            listed = [f"seed{'s' * (len(seeds) > 1)} {', '.join(seeds)} {state}" for state, seeds in ends.items()]
            more = f"; and {len(listed) - LISTED} more" if len(listed) > LISTED else ""
            if listed:
                yield f"{training.label}: {'; '.join(listed[:LISTED])}{more}."


def provenance(numbers: Numbers) -> Mapping[str, object]:
    """How the numbers of trainings were made."""
    stores = [*numbers.trained.values()]
    if not stores:
        return {}
    attributes = stores[0].attrs
    made = attributes.get(IDENTITY, {})
    of_log = attributes.get("training", {})
    versions = made.get("versions") or of_log.get("versions") or {}
    seeds = sorted({int(seed) for data in stores for seed in data["run"].values})
    facts = {
        "seeds": f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else str(seeds[0]),
        "dtype": made.get("dtype") or of_log.get("config", {}).get("dtype"),
        "parameters": of_log.get("parameters"),
        "device": devices_of(attributes) if HARDWARE in attributes else of_log.get("devices"),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
    }
    return {name: value for name, value in facts.items() if value}


# Training.


def train_all(
    specs: Sequence[TrainingSpec], chosen: Chosen, out: Location, log: Callable[[str], None], show: Callable[[], object]
) -> None:
    """Train every model that is wanted, in turn.

    log: called with a line of text before each step. show: rebuilds the page; it is called after each training if all of them can
    be shown unfinished.

    Errors: as for `train_one`.
    """
    wanted = [spec for spec in specs if spec.wanted]
    for number, spec in enumerate(wanted, 1):
        seconds = seconds_left(wanted, out)
        left = "" if seconds is None else f"; about {duration(seconds)} left for all"
        log(f"{spec.name} ({number} of {len(wanted)}{left})")
        train_one(spec, chosen, out, log)
        if number < len(wanted) and all(spec.so_far for spec in specs):
            processes.by_first(show)


def seconds_left(specs: Sequence[TrainingSpec], out: Location) -> float | None:
    """Return the time for the remaining steps, at the mean cost of finished trainings' steps; None before the first of these."""
    costs, steps = [], 0
    for spec in specs:
        folder = out / spec.name
        if (folder / SUMMARY).is_file():
            costs.append(step_cost(folder))
        else:
            lines = read(folder)[1] if (folder / LOG).is_file() else []
            done = max((line["step"] for line in lines), default=0)
            steps += (spec.training.steps - done) * len(table(spec.training, registry.task(spec.training)))
    known = [cost for cost in costs if cost is not None]
    return steps * float(np.mean(known)) / 1000 if known else None


def train_one(spec: TrainingSpec, chosen: Chosen, out: Location, log: Callable[[str], None]) -> None:
    """Train a spec, or its remaining steps, in the folder of its name in `out`, and store the measurements unless they are there.

    Errors: a training or a store of other numbers; no permission, no room.
    """
    store, identity = store_path(out, spec.name), description(spec)
    if processes.largest(is_complete(store, identity))[0]:  # joined processes must all train, or not at all
        return
    log(f"{spec.name}: training")
    found = train(spec.training, out / spec.name, log)
    log(f"{spec.name}: measuring")
    study = {"experiment": chosen.experiment, "config": documents.plain(documents.fields(chosen.config))}
    processes.by_first(lambda: write_whole(spec.measure(found), store, identity, study))


def description(spec: TrainingSpec) -> dict[str, object]:
    """The training and the versions that made some numbers, as JSON."""
    versions = {name: importlib.metadata.version(name) for name in ("jax", "jaxlib", "optax")}
    return {
        "calculation": spec.name,
        "training": documents.plain(documents.decisive(spec.training)),
        "dtype": spec.training.dtype,
        "versions": {"sinkjax": __version__} | versions,
    }
