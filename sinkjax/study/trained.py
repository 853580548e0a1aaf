"""Studies that train their own models: contrasts, premises and rows over the seeds of trainings.

A measure of a trained model takes the store of a training and returns float[run], a number for each seed: NaN for a run that
diverged or is not finished, inf for a step that was never reached.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import intervals
from sinkjax.analysis.estimates import Absent
from sinkjax.analysis.intervals import FEWEST, Interval
from sinkjax.analysis.summary import NOT_COMPARED, Row
from sinkjax.errors import unknown
from sinkjax.study.claims import TrainedModels
from sinkjax.study.contrasts import Contrast, Parts, facts_of
from sinkjax.study.facts import devices_in_words
from sinkjax.study.measures import Measure, read_measure
from sinkjax.study.numbers import Numbers, Stored
from sinkjax.study.premises import Premise
from sinkjax.study.trace import Lab
from sinkjax.study.work import TrainingSpec
from sinkjax.sweeps.header import HARDWARE, IDENTITY
from sinkjax.train.config import ALL_STEPS, DIVERGED

if TYPE_CHECKING:
    import xarray

MODELS, RUNS, SEEDS, PAPER = "models", "runs", "seeds", "paper"
FINISHED = (ALL_STEPS, "converged")  # outcomes of runs that came to their end
LISTED = 8  # seeds that a sentence names


def of_runs(read: Numbers, measure: Measure, training: TrainedModels) -> dict[int, float]:
    """Return a measure of each run of a training, by its seed; only finite numbers.

    Raises:
        Absent: The training was not run, or no run of it has the number.
    """
    if not read.has(training.name):
        raise Absent(f"{training.name} was not trained")
    data = read.data(training.name)
    values = read_measure(measure, data)
    found = {int(seed): float(value) for seed, value in zip(data["run"].values, values, strict=True) if np.isfinite(value)}
    if not found:
        raise Absent(f"no run of {training.name} has finished with a finite {measure.name}")
    return found


def versus(
    measure: Measure, training: TrainedModels, minus: TrainedModels | float = 0.0, whole: TrainedModels | None = None
) -> Contrast:
    """Return a measure of the models of one training minus the same of another, paired by seed, or minus a number.

    Args:
        measure: The compared measure; in logarithms if it has no upper bound.
        training: The training.
        minus: The training that is subtracted, or a number that the paper states.
        whole: A training: the size is then a share of what `training` has more than this one. None: of the measure of `training`,
            or of nothing if a number is subtracted, or if the measure has no whole (a loss, a logarithm).
    """
    other = minus if isinstance(minus, TrainedModels) else None

    def parts(read: Numbers) -> Parts:
        runs = {one.name: of_runs(read, measure, one) for one in (training, other, whole) if one is not None}
        seeds = sorted(set.intersection(*(set(values) for values in runs.values())))
        if len(seeds) < FEWEST:
            raise Absent(
                f"{len(seeds)} seed{'s' * (len(seeds) != 1)} of {' and '.join(runs)} finished, and a word needs {FEWEST}"
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

    def test(read: Numbers) -> tuple[bool, str]:
        mean = float(np.mean([*of_runs(read, measure, training).values()]))
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


def rows(lab: Lab, read: Stored) -> list[Row]:
    """Return a row for each training and measure, with the paper's number where it has any, and a row for each run."""
    table, runs = list[Row](), list[Row]()
    trainings = list(lab.trainings.values())
    for training in trainings:
        if lab.columns:
            table.append(Row(training.label, MODELS, SEEDS, alone(_finished(read, training.name))))
        for measure in lab.columns:
            shown, effect = alone("-"), NOT_COMPARED
            if training.name in read:
                data = read[training.name]
                values = read_measure(measure, data)
                runs += run_rows(data, training.label, measure.name, values)
                if not np.isnan(values).all():
                    shown = read.interval(np.where(np.isfinite(values), values, np.nan))
                if training.compared and training is not trainings[0] and trainings[0].name in read:
                    effect = paired(read[trainings[0].name], data, measure, read)
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


def paired(first: xarray.Dataset, second: xarray.Dataset, measure: Measure, read: Stored) -> Interval:
    """Return the mean difference of a measure from the first training, over the seeds that both have."""
    before, after = (dict(zip(data["run"].values.tolist(), read_measure(measure, data), strict=True)) for data in (first, second))
    pairs = [after[seed] - before[seed] for seed in after if seed in before]
    return intervals.interval(np.array([pair for pair in pairs if np.isfinite(pair)]), seed=read.settings.seed)


def _finished(read: Stored, name: str) -> str:
    """Return how many of the planned runs of a training came to their end, as text."""
    if name not in read:
        return "not run"
    done = sum(str(outcome) in FINISHED for outcome in read[name]["outcome"].values)
    return f"{done} of {max(read[name].sizes['run'], read.settings.seeds)}"


def status(lab: Lab, read: Stored) -> Iterator[str]:
    """Yield sentences on trainings that were not run, and on runs that did not come to their end."""
    missing = [one.label for one in lab.trainings.values() if one.name not in read]
    if missing:
        yield f"{len(missing)} of {len(lab.trainings)} trainings were not run: {'; '.join(missing)}."
    for training in lab.trainings.values():
        if training.name in read and {"outcome", "steps"} <= set(read[training.name]):
            ends = _ends(read[training.name])
            listed = [f"seed{'s' * (len(seeds) > 1)} {', '.join(seeds)} {state}" for state, seeds in ends.items()]
            more = f"; and {len(listed) - LISTED} more" if len(listed) > LISTED else ""
            if listed:
                yield f"{training.label}: {'; '.join(listed[:LISTED])}{more}."


def _ends(data: xarray.Dataset) -> Mapping[str, list[str]]:
    """Return the seeds of the runs that did not come to their end, by how they ended."""
    found: dict[str, list[str]] = {}
    for seed, outcome, steps in zip(*(data[part].values for part in ("run", "outcome", "steps")), strict=True):
        if str(outcome) not in FINISHED:
            said = "diverged" if outcome == DIVERGED else str(outcome)
            found.setdefault(f"{said} at step {int(steps):,}", []).append(str(seed))
    return found


def provenance(read: Stored) -> Mapping[str, object]:
    """How the numbers of trainings were made."""
    if not read.stores:
        return {}
    attributes = next(iter(read.stores.values())).attrs
    made = attributes.get(IDENTITY, {})
    of_log = attributes.get("training", {})
    versions = made.get("versions") or of_log.get("versions") or {}
    seeds = sorted({int(seed) for data in read.stores.values() for seed in data["run"].values})
    facts = {
        "seeds": f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else str(seeds[0]),
        "dtype": made.get("dtype") or of_log.get("config", {}).get("dtype"),
        "parameters": of_log.get("parameters"),
        "device": devices_in_words(attributes) if HARDWARE in attributes else of_log.get("devices"),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
    }
    return {name: value for name, value in facts.items() if value}
