"""Studies that train their own models: contrasts, premises and rows over the seeds of trainings.

A measure of a trained model is a `Measure` whose function takes the store of a training and returns float[run], a number for each
seed: NaN for a run that diverged or is not finished, inf for a step that was never reached.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import intervals
from sinkjax.analysis.estimates import Absent
from sinkjax.analysis.intervals import FEWEST, Interval
from sinkjax.analysis.summary import NOT_COMPARED, Row
from sinkjax.errors import unknown
from sinkjax.studies.declaration import Premise, Study
from sinkjax.studies.readings import Parts, Readings, ends_of, facts_of
from sinkjax.studies.readouts import label_of, read_measure
from sinkjax.studies.scope import Contrast, Measure, Scope
from sinkjax.studies.study import TrainingSpec
from sinkjax.studies.words import Word
from sinkjax.train.config import ALL_STEPS, DIVERGED

if TYPE_CHECKING:
    import xarray

    from sinkjax.studies.config import Settings
    from sinkjax.studies.results import Results


MODELS, RUNS, SEEDS, PAPER = "models", "runs", "seeds", "paper"
FINISHED = (ALL_STEPS, "converged")  # outcomes of runs that came to their end
LISTED = 8  # seeds that a sentence names


def label(name: str, word: Word) -> str:
    """What readers call a training: its label, or else its name."""
    return str(word.given.get("label") or name)


def of_runs(read: Readings, measure: Measure, training: str) -> dict[int, float]:
    """A measure of each run of a training, by its seed; only finite numbers.

    Args:
        read: The stores.
        measure: The measure.
        training: The name of the training.

    Returns:
        Seed -> number.

    Raises:
        Absent: The training was not run, or no run of it has the number.
    """
    store = read.store(training)
    if store not in read.results:
        raise Absent(f"{training} was not trained")
    data = read.results[store]
    values = read_measure(measure, read.scope, data)
    found = {int(seed): float(value) for seed, value in zip(data["run"].values, values, strict=True) if np.isfinite(value)}
    if not found:
        raise Absent(f"no run of {training} has finished with a finite {label_of(measure, read.scope)}")
    return found


@Contrast.define(
    trainings=("training", "minus", "whole"), uncontrolled="the model or number that is subtracted is the comparison"
)
def versus(read: Readings, measure: Measure, training: str, minus: object = 0.0, whole: str = "") -> Parts:
    """A measure of the models of one training minus the same of another, paired by seed, or minus a number.

    Args:
        read: The stores.
        measure: The compared measure; in logarithms if it has no upper bound.
        training: The name of the training.
        minus: The name of the training that is subtracted, or a number that the paper states.
        whole: The name of a training: the size is then a share of what `training` has more than this one. "": of the measure of
            `training`, or of nothing if a number is subtracted, or if the measure has no whole (a loss, a logarithm).

    Raises:
        Absent: One of them was not trained, or fewer than `FEWEST` seeds have finished in both.
    """
    names = [name for name in (training, minus, whole) if isinstance(name, str) and name]
    runs = {name: of_runs(read, measure, name) for name in names}
    seeds = sorted(set.intersection(*(set(values) for values in runs.values())))
    if len(seeds) < FEWEST:
        raise Absent(f"{len(seeds)} seed{'s' * (len(seeds) != 1)} of {' and '.join(names)} finished, and a word needs {FEWEST}")
    facts, said = measure.meaning.facts, label_of(measure, read.scope)
    log = bool(facts.get("log"))
    of = {name: (np.log if log else np.array)([values[seed] for seed in seeds]) for name, values in runs.items()}
    level = 0.0 if isinstance(minus, str) else float(read.scope.get(minus))
    other = of[minus] if isinstance(minus, str) else np.full(len(seeds), np.log(level) if log else level)
    shared = isinstance(minus, str) and not log and facts.get("whole", True)
    of_whole = of[training] - of[whole] if whole else of[training] if shared else None
    text, (span, unit) = f"{said}: {training}" + (f" minus {minus}" if isinstance(minus, str) or level else ""), facts_of(measure)
    return Parts(of[training] - other, None, of_whole, span, unit, text, whole_range=ends_of(span) if whole else None)


@Premise.define(trainings=("training",))
def attains(read: Readings, measure: Measure, training: str, least: object = None, most: object = None) -> tuple[bool, str]:
    """The mean of a measure over the runs of a training is at least, or at most, a cut-off that a paper states."""
    mean = float(np.mean([*of_runs(read, measure, training).values()]))
    said = f"{label_of(measure, read.scope)} of {training} is {mean:.3g}"
    low, high = -np.inf if least is None else read.scope.get(least), np.inf if most is None else read.scope.get(most)
    wanted = " and ".join(f"{side} {cut:g}" for side, cut in (("at least", low), ("at most", high)) if np.isfinite(cut))
    return bool(low <= mean <= high), f"{said}, and must be {wanted}"


def specs(study: Study, config: Settings) -> tuple[TrainingSpec, ...]:
    """The trainings of a study. Errors: `only` names another; fields that do not fit."""
    for name in config.only:
        if name not in study.trainings:
            raise unknown("training", name, study.trainings)
    scope = Scope(config, None)
    found = {name: word.evaluate(scope, name) for name, word in study.trainings.items()}
    wanted = config.only or study.trainings
    return tuple(dataclasses.replace(spec, wanted=name in wanted) for name, spec in found.items() if spec is not None)


def stated(word: Word, measure: Measure) -> float | str | None:
    """The paper's number or words for a measure of a training, or None."""
    return (word.given.get("paper") or {}).get(measure.word)


def alone(value: float | str) -> Interval:
    """A number without an interval, or words in its place."""
    if isinstance(value, str):
        return dataclasses.replace(NOT_COMPARED, note=value)
    return intervals.interval(np.array([float(value)]))


def rows(study: Study, read: Readings) -> list[Row]:
    """A row for each training and measure, with the paper's number where it has any, and a row for each run.

    The numbers of a training whose word is `compared` have the difference from the first training, paired by seed.
    """
    results = read.results
    table, runs = list[Row](), list[Row]()
    first = next(iter(study.trainings))
    for name, word in study.trainings.items():
        title = label(name, word)
        if study.measures:
            table.append(Row(title, MODELS, SEEDS, alone(_finished(results, name))))
        for measure in study.measures:
            said, shown, effect = label_of(measure, read.scope), alone("-"), NOT_COMPARED
            if name in results:
                data = results[name]
                values = read_measure(measure, read.scope, data)
                runs += run_rows(data, title, said, values)
                if not np.isnan(values).all():
                    shown = results.interval(np.where(np.isfinite(values), values, np.nan))
                if name != first and first in results and word.meaning.facts.get("compared"):
                    effect = difference(results[first], data, read_measure(measure, read.scope, results[first]), values, read)
            table.append(Row(title, MODELS, said, shown, effect))
            if any(stated(other, measure) is not None for other in study.trainings.values()):
                paper = "-" if stated(word, measure) is None else stated(word, measure)
                table.append(Row(title, MODELS, f"{said}, {PAPER}", alone(str(paper))))
    return table + runs


def _finished(results: Results, name: str) -> str:
    """How many of the planned runs of a training came to their end."""
    if name not in results:
        return "not run"
    done = sum(str(outcome) in FINISHED for outcome in results[name]["outcome"].values)
    return f"{done} of {max(results[name].sizes['run'], results.config.seeds)}"


def run_rows(data: xarray.Dataset, title: str, measure: str, values: NDArray) -> list[Row]:
    """A row for each run of a training, without values that are not finite."""
    return [
        Row(f"{title}, seed {seed}", RUNS, measure, intervals.interval(np.array([value])))
        for seed, value in zip(data["run"].values, values, strict=True)
        if np.isfinite(value)
    ]


def difference(first: xarray.Dataset, second: xarray.Dataset, base: NDArray, values: NDArray, read: Readings) -> Interval:
    """The mean difference of a measure from the first training, over the seeds that both have."""
    before = dict(zip(first["run"].values.tolist(), base, strict=True))
    pairs = [value - before[seed] for seed, value in zip(second["run"].values.tolist(), values, strict=True) if seed in before]
    return intervals.interval(np.array([pair for pair in pairs if np.isfinite(pair)]), seed=read.scope.config.seed)


def status(study: Study, results: Results) -> Iterator[str]:
    """Sentences on trainings that were not run, and on runs that did not come to their end."""
    missing = [label(name, word) for name, word in study.trainings.items() if name not in results]
    if missing:
        yield f"{len(missing)} of {len(study.trainings)} trainings were not run: {'; '.join(missing)}."
    for name, word in study.trainings.items():
        if name not in results or not {"outcome", "steps"} <= set(results[name]):
            continue
        data = results[name]
        ends: dict[str, list[str]] = {}
        for seed, outcome, steps in zip(*(data[part].values for part in ("run", "outcome", "steps")), strict=True):
            if str(outcome) not in FINISHED:
                said = "diverged" if outcome == DIVERGED else str(outcome)
                ends.setdefault(f"{said} at step {int(steps):,}", []).append(str(seed))
        if ends:
            listed = [f"seed{'s' * (len(seeds) > 1)} {', '.join(seeds)} {state}" for state, seeds in ends.items()]
            more = f"; and {len(listed) - LISTED} more" if len(listed) > LISTED else ""
            yield f"{label(name, word)}: {'; '.join(listed[:LISTED])}{more}."


def provenance(results: Results) -> Mapping[str, object]:
    """How the numbers of trainings were made."""
    from sinkjax.studies.folder import devices_in_words
    from sinkjax.sweeps.header import HARDWARE, IDENTITY

    if not results.stores:
        return {}
    attributes = next(iter(results.stores.values())).attrs
    made = attributes.get(IDENTITY, {})
    of_log = attributes.get("training", {})
    versions = made.get("versions") or of_log.get("versions") or {}
    seeds = sorted({int(seed) for data in results.stores.values() for seed in data["run"].values})
    facts = {
        "seeds": f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else str(seeds[0]),
        "dtype": made.get("dtype") or of_log.get("config", {}).get("dtype"),
        "parameters": of_log.get("parameters"),
        "device": devices_in_words(attributes) if HARDWARE in attributes else of_log.get("devices"),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
    }
    return {name: value for name, value in facts.items() if value}
