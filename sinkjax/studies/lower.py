"""Lower a study from a value to the framework's form: sweeps with controls, measures, verdicts and figures."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.analysis.summary import Row
from sinkjax.config_files.checks import layers_below
from sinkjax.errors import SinkjaxError
from sinkjax.studies import study as framework
from sinkjax.studies import trained
from sinkjax.studies.declaration import Described, Study
from sinkjax.studies.grids import At, Grid, Point, cells_of, controls, inputs_of, matching
from sinkjax.studies.judging import CONTROLS, TWIN, drawn_figure, exact_rows, featured_labels, readings, verdicts
from sinkjax.studies.known import Unedited, blank, measured
from sinkjax.studies.pictures import drawn_layers
from sinkjax.studies.readings import claimed_rows, claims_on, field_names, judged_on, measures_of
from sinkjax.studies.readouts import check_measure, check_positions, label_of, probe_of, read_measure
from sinkjax.studies.scope import Contrast, Measure, Scope
from sinkjax.studies.settings import config_type, filled
from sinkjax.studies.specs import NOOP, NOOP_PROMPTS, NOOP_SERIES
from sinkjax.studies.study import Batch, Calculation, Condition, Shown, Sweep, Values
from sinkjax.studies.words import as_tuple, plain, words_in

if TYPE_CHECKING:
    import xarray

    from sinkjax.checkpoints.model import Model
    from sinkjax.model.config import Config
    from sinkjax.report.section import Drawing
    from sinkjax.studies.config import Settings
    from sinkjax.studies.results import Results

UNTRAINED = "untrained:"


@functools.cache
def lower(study: Study) -> framework.Study:
    """The framework's form of a study.

    Args:
        study: The study.

    Returns:
        The framework's declaration of it.
    """
    if study.trainings:
        return _trains(study)
    grids = {name: grid for name, grid in study.grids.items() if name != NOOP}
    shown = [word for word in study.figures if word.word == "maps"]
    described = [claim for claim in study.claims.values() if isinstance(claim.contrast, Described)]
    judged = [claim for claim in study.claims.values() if isinstance(claim.contrast, Contrast)]

    def sweeps(config: Settings, architecture: Config) -> Sequence[Sweep | Calculation]:
        every = (_sweeps(study, name, grid, config, architecture) for name, grid in grids.items())
        return (*itertools.chain(*every), *_calculations(study, config, architecture))

    def noop_edits(config: Settings, architecture: Config, known: Mapping[str, object] | None = None) -> Iterator[Condition]:
        yield framework.no_edit()
        for point in Scope(config, architecture, known or {}).get(study.grids[NOOP])[1:]:
            yield Condition(point.edit.named(f"identity ({point.edit.label})"), NOOP_SERIES)

    def noop(config: Settings, architecture: Config) -> Sweep:
        inputs = framework.Inputs(Scope(config, None).get(study.grids[NOOP].given["inputs"]))
        prompts, values = min(NOOP_PROMPTS, config.prompts), _known(study) if study.known else None
        return Sweep(NOOP, noop_edits, prompts=prompts, inputs=lambda _: inputs, values=values, optional=True)

    def check(config: Settings, architecture: Config) -> None:
        if shown:
            layers_below(config, "map_layers", architecture.layers)
        for computation in study.computations.values():
            computation.meaning.facts.get("check", bool)(config)
        scope = Scope(config, architecture, blank(study.known, Scope(config, architecture), 1))
        rows: dict[tuple[str, str], str] = {}
        for name, grid in grids.items():
            asked, title = probe_of(measures_of(study, name), scope), scope.get(grid.given["title"])
            for number, point in enumerate(scope.get(grid)[1:]):
                if (other := rows.setdefault((title, point.label), name)) != name and study.measures:
                    raise SinkjaxError(f"the grids {other!r} and {name!r} both have a row {point.label!r}: give one a title")
                for measure in measures_of(study, name):
                    if number == 0:
                        check_measure(measure, scope.at(dict(point.bound)), asked)
                    check_positions(measure, scope.at(dict(point.bound)))

    def maps(config: Settings, architecture: Config) -> Shown:
        chosen = [one for word in shown for one in words_in(word) if isinstance(one, At)]
        scope = Scope(config, architecture, blank(study.known, Scope(config, architecture), 1))
        names = tuple(dict.fromkeys(scope.get(one)[0] for one in chosen))
        labels, last = ["no edit"], 0
        for one in chosen:
            points = scope.get(grids[scope.get(one)[0]])
            for row in matching(points, one, scope):
                labels.append(points[row].label)
                last = max([last, *(value for name, value in points[row].bound if isinstance(value, int))])
        layers = drawn_layers(scope.get(shown[0].given["layers"]), architecture.layers)
        return Shown(tuple(dict.fromkeys(labels)), names, layers, start=last + 1)

    return framework.Study(
        **_shared(study),
        needs=study.needs,
        sweeps=sweeps,
        probe=lambda config: probe_of(study.measures, Scope(config, None)) if study.measures else sinkjax.Probe(),
        noop=noop if NOOP in study.grids else None,
        shown=maps if shown else None,
        check=check,
        featured=functools.partial(featured_labels, study),
        rows=functools.partial(exact_rows, study) if described else None,
        over="documents" if grids or judged or study.computations else "model",
    )


def _shared(study: Study) -> dict[str, Any]:
    """Return the framework fields that every study has."""
    of_study: dict[str, Callable[..., Any]] = {"figures": _figures, "notes": _notes, "verdicts": verdicts}
    fields = {"name": study.name, "config": config_type(study), "title": study.title or study.name, "question": study.question}
    return fields | {name: functools.partial(make, study) for name, make in of_study.items()}


def _trains(study: Study) -> framework.Study:
    """Lower a study that trains its own models."""

    labels = [trained.label(name, word) for name, word in study.trainings.items()]

    def rows(results: Results) -> list[Row]:
        return [*trained.rows(study, readings(study, results)), *exact_rows(study, results)]

    return framework.Study(
        **_shared(study),
        trainings=functools.partial(trained.specs, study),
        rows=rows,
        status=functools.partial(trained.status, study),
        provenance=trained.provenance,
        featured=(lambda results: labels) if study.measures else None,
        over="seeds",
        subject="model",
    )


def _figures(study: Study, config: Settings, architecture: Config) -> list[Callable[[Results], Drawing | list[Drawing] | None]]:
    """Return the functions that draw a study's figures."""
    return [functools.partial(drawn_figure, study, word) for word in study.figures]


def _notes(study: Study, config: Settings, results: Results) -> list[str]:
    """Return a study's notes, preceded by the definitions of its measures if it trains models; sweeps define their own."""
    every = [*study.measures, *(word for word in study.words if isinstance(word, Measure))] if study.trainings else []
    definitions = dict.fromkeys(note for measure in every if (note := measure.meaning.facts.get("note")))
    return [*definitions, *(filled(note, vars(config)) for note in study.notes)]


# Sweeps.


def _known(study: Study) -> Values:
    """Return a study's known numbers, as values to measure once the model is loaded."""
    known = study.known

    def compute(config: Settings, model: Model, batch: Batch, edited: Model | None = None) -> dict[str, object]:
        runs = [Unedited(one, batch, None, config.control_prompts) for one in (model, edited or model)]
        return measured(known, Scope(config, model.config), *runs)

    declared = plain({"known": known, "grids": study.grids, "controls": study.controls})
    return Values(lambda config, architecture, prompts: blank(known, Scope(config, architecture), prompts), compute, declared)


def _sweeps(study: Study, name: str, grid: Grid, config: Settings, architecture: Config) -> Iterator[Sweep]:
    """Lower a grid to a sweep with its controls, and to the claims' conditions on the untrained twin."""
    scope = Scope(config, architecture)
    values = _known(study) if study.known else None
    measures = measures_of(study, name)
    asked = probe_of([*measures, *(word for word in words_in(study.known) if isinstance(word, Measure))], scope)
    title = str(scope.get(grid.given["title"]))

    def build(make: Callable[[Scope], Sequence[Condition]]) -> Callable[..., Sequence[Condition]]:
        def conditions(config: Settings, architecture: Config, known: Mapping[str, object] | None = None) -> Sequence[Condition]:
            return make(Scope(config, architecture, known or {}))

        return conditions

    def conditions(scope: Scope) -> list[Point]:
        found: list[Point] = scope.get(grid)
        for row in claimed_rows(study, name, found, scope, controlled=True) if name in study.controls else ():
            found[row] = dataclasses.replace(found[row], budget=found[row].label)
        return found

    def random(scope: Scope) -> list[Point]:
        points = conditions(scope)
        rows = claimed_rows(study, name, points, scope, controlled=True)
        return list(controls(study.controls[name], f"{study.name} {name}", points, rows, cells_of(grid, scope), scope))

    def claimed(scope: Scope) -> list[Point]:
        points = conditions(scope)
        return [points[row] for row in sorted({0, *claimed_rows(study, name, points, scope)})]

    def inputs(config: Settings) -> framework.Inputs:
        return inputs_of(grid, Scope(config, architecture))

    prompts = int(scope.get(grid.given["prompts"]))
    few = min(getattr(config, "control_prompts", prompts), prompts)
    judged = judged_on(study, name, scope)
    of_controls = Sweep(f"{name}{CONTROLS}", build(random), probe=asked, prompts=few, values=values)
    drawn = (of_controls,) if name in study.controls and (judged or not claims_on(study, name)) else ()
    made = [_as_measure(study, name, measure, config, architecture) for measure in study.measures if measure in measures]
    yield Sweep(name, build(conditions), made, asked, prompts, inputs, drawn, values, prefix=title, series=title)
    if judged and _has_twin(config):
        yield Sweep(f"{name}{TWIN}", build(claimed), (), asked, few, inputs, values=values, twin=True)


def _as_measure(study: Study, name: str, measure: Measure, config: Settings, architecture: Config) -> framework.Measure:
    """Lower a measure for the summary: each condition is read at its own axes and compared with no edit there."""
    scope = Scope(config, architecture)
    named = field_names(measure)
    grid = study.grids[name]
    axes = [axis for axis in grid.given["over"] or {} if axis in named]

    def here(data: xarray.Dataset) -> Scope:
        wanted = {key: word for key, word in study.known.items() if key in named}
        if not wanted:
            return scope
        return Scope(config, architecture, measured(wanted, scope, Unedited(None, None, data, config.control_prompts)))

    @functools.cache
    def bounds() -> dict[str, dict[str, object]]:
        """Map each condition's and control's label to its axes."""
        blanks = blank(study.known, scope, 1)
        points: list[Point] = []
        for sweep in _sweeps(study, name, grid, config, architecture):
            for part in (sweep, *sweep.controls):
                points += [point for point in part.conditions(config, architecture, blanks) if isinstance(point, Point)]
        return {point.label: dict(point.bound) for point in points}

    def rows(data: xarray.Dataset, edited: bool) -> NDArray:
        found, within = [], here(data)
        read: dict[object, NDArray] = {}
        for row, label in enumerate(data["edit"].values):
            at = {axis: bounds()[str(label)].get(axis, _first(grid, axis, scope)) for axis in axes}
            key = tuple(at.items())
            if key not in read:
                read[key] = read_measure(measure, within.at(at), data)
            found.append(read[key][row if edited else 0])
        return np.stack(found)

    facts = measure.meaning.facts
    label = label_of(measure, Scope(config, architecture, blank(study.known, scope, 1)))
    note = facts.get("note", "")
    if not axes:
        return framework.Measure(label, lambda data: read_measure(measure, here(data), data), None, facts.get("unit", ""), note)
    return framework.Measure(label, lambda data: rows(data, True), lambda data: rows(data, False), facts.get("unit", ""), note)


def _first(grid: Grid, axis: str, scope: Scope) -> object:
    """Return the first value of an axis, where the unedited condition is read."""
    return as_tuple(scope.get(grid.given["over"][axis]))[0]


def _calculations(study: Study, config: Settings, architecture: Config) -> Iterator[Calculation]:
    for name, word in study.computations.items():
        facts, scope = word.meaning.facts, Scope(config, architecture)
        given = {key: scope.get(entry) for key, entry in word.given.items()}
        compute = functools.partial(word.meaning.of, scope, **given)
        prompts, variables = int(scope.get(facts.get("prompts", 1))), tuple(facts["variables"])
        inputs = framework.Inputs(given["inputs"]) if "inputs" in given else facts.get("inputs", framework.TEXT)
        made = Calculation(name, compute, variables, prompts, inputs, declared=plain(word))
        yield made
        if judged_on(study, name, scope) and _has_twin(config):
            yield dataclasses.replace(made, name=f"{name}{TWIN}", twin=True)


def _has_twin(config: Settings) -> bool:
    """Return whether a study is also measured on its model's untrained twin."""
    return bool(config.twin) and not str(config.model).startswith(UNTRAINED)
