"""A traced study in the form that the runner takes: sweeps with controls and twins, figures, verdicts."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.analysis.estimates import Absent
from sinkjax.analysis.summary import Row
from sinkjax.analysis.verdicts import Verdict
from sinkjax.config_files.checks import MIN_QUERIES, layers_below
from sinkjax.config_files.documents import check_keys, filled, one_line
from sinkjax.edits.edit import Edit
from sinkjax.errors import SinkjaxError, unknown
from sinkjax.lab import trained
from sinkjax.lab.baseline import Unedited
from sinkjax.lab.conditions import Point, Sweep, Where
from sinkjax.lab.figures import drawn_layers
from sinkjax.lab.judging import Statement, exact_rows, featured, verdicts
from sinkjax.lab.measures import Measure, merged
from sinkjax.lab.numbers import CONTROLS, TWIN, Stored, read_measure
from sinkjax.lab.places import Case
from sinkjax.lab.settings import own_bos
from sinkjax.lab.trace import Claim, Figure, Lab
from sinkjax.probes.record import Record, to_dataset
from sinkjax.studies import study as framework
from sinkjax.studies.config import Trains
from sinkjax.studies.specs import NOOP, NOOP_PROMPTS, NOOP_SERIES, content, without_replacement
from sinkjax.studies.study import CONTROL, NO_EDIT, UNTRAINED, Batch, Calculation, Condition, Inputs, Shown, Values
from sinkjax.sweeps.plan import record_shapes

if TYPE_CHECKING:
    import xarray

    from sinkjax.checkpoints.model import Model
    from sinkjax.model.config import Config
    from sinkjax.report.section import Drawing
    from sinkjax.studies.results import Results

EDITS, PROMPTS = 2, 3  # the size of the dataset that a measure is tried on
WORDS = 300  # characters of an error in a measure's own code


@dataclass(frozen=True, eq=False)
class Prose:
    """The text of a study: title, question, notes, and the statement of each claim."""

    title: str = ""
    question: str = ""
    notes: tuple[str, ...] = ()
    claims: Mapping[str, Statement] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Program:
    """A study: its function, its settings and its text.

    Attributes:
        name: "paper/study".
        study: The function.
        settings: The dataclass of its settings.
        prose: Its text.
        trains: Whether it trains its own models.
        digest: Of its source. A store with values that only the model gives is taken up without measuring them again where it is
            the same.
    """

    name: str
    study: Callable[[Lab, Any], None]
    settings: type
    prose: Prose
    trains: bool
    digest: str

    def named(self, name: str) -> Program:
        """Return the same study by another name. Its random controls depend on the name."""
        return dataclasses.replace(self, name=name)

    def trace(self, settings: Any, architecture: Config | None, **of_model: Any) -> Lab:
        """Call the study, and collect what it does on an architecture."""
        lab = Lab(self.name, architecture, settings, **of_model)  # type: ignore[arg-type]
        self.study(lab, settings)
        return lab

    @functools.cached_property
    def _traced(self) -> dict[str, Lab]:
        return {}

    def traced(self, settings: Any, architecture: Config | None) -> Lab:
        """Call the study on placeholders, once for each architecture and settings."""
        key = repr((settings, architecture))
        if key not in self._traced:
            self._traced[key] = self.trace(settings, architecture, values=dict(getattr(architecture, "values", {})))
        return self._traced[key]

    def lowered(self) -> framework.Study:
        """The form that the runner takes."""
        shared: dict[str, Any] = {
            "name": self.name,
            "config": self.settings,
            "title": self.prose.title or self.name,
            "question": self.prose.question,
            "figures": self.figures,
            "notes": self.notes,
            "verdicts": self.verdicts,
        }
        if self.trains:
            return framework.Study(
                **shared,
                trainings=lambda config: trained.specs(self.traced(config, None), config),
                rows=self.rows_of_trainings,
                status=lambda results: trained.status(self.of(results)[0], results),
                provenance=trained.provenance,
                featured=self.featured_trainings,
                over="seeds",
                subject="model",
            )
        return framework.Study(
            **shared,
            sweeps=self.sweeps,
            probe=lambda config: sinkjax.Probe(),
            noop=self.noop,
            shown=self.maps,
            check=self.check,
            featured=lambda results: featured(*self.of(results)),
            rows=lambda results: exact_rows(*self.of(results)),
        )

    def featured_trainings(self, results: Results) -> list[str]:
        """The trainings in the short table; none where the summary has no row of a training."""
        lab, _ = self.of(results)
        return [one.label for one in lab.trainings.values()] if lab.columns else []

    # What runs.

    def sweeps(self, config: Any, architecture: Config) -> Sequence[framework.Sweep | Calculation]:
        """Every sweep with its controls, its claims' conditions on the untrained twin, and every calculation."""
        return [*self._parts(config, architecture)]

    def _parts(self, config: Any, architecture: Config) -> Iterator[framework.Sweep | Calculation]:
        lab = self.traced(config, architecture)
        for sweep in lab.sweeps.values():
            yield from self._sweep(lab, sweep)
        for name, calculation in lab.calculations.items():
            yield calculation
            if judged_on(lab, name) and _has_twin(config):
                yield dataclasses.replace(calculation, name=f"{name}{TWIN}", twin=True)

    def _sweep(self, lab: Lab, sweep: Sweep) -> Iterator[framework.Sweep]:
        name, config = sweep.name, lab.settings
        asked = asked_of(lab, sweep)
        prompts = config.prompts if sweep.prompts is None else sweep.prompts
        few = min(getattr(config, "control_prompts", prompts), prompts)
        judged, claimed = judged_on(lab, name), claims_on(lab, name)

        def conditions(part: Callable[[Lab], Sequence[Condition]]) -> Callable[..., Sequence[Condition]]:
            return lambda config, architecture, found=None: part(found or self.traced(config, architecture))

        def inputs(config: Any) -> Inputs:
            return Inputs(sweep.inputs, own_bos(config) if sweep.bos == "own" else sweep.bos)

        values = self._values() if lab.measures else None
        measures: list[Any] = [bound(one, sweep) for one in sweep.measures]
        random = framework.Sweep(
            f"{name}{CONTROLS}", conditions(functools.partial(controls, name=name)), (), asked, few, values=values
        )
        drawn = (random,) if sweep.control is not None and (judged or not claimed) else ()
        points = conditions(functools.partial(budgeted, name=name))
        yield framework.Sweep(
            name, points, measures, asked, prompts, inputs, drawn, values, prefix=sweep.title, series=sweep.title
        )
        if judged and _has_twin(config):
            of_twin = conditions(functools.partial(claimed_points, name=name))
            yield framework.Sweep(f"{name}{TWIN}", of_twin, (), asked, few, inputs, values=values, twin=True)

    def _values(self) -> Values:
        """The numbers and arrays that only the loaded model gives, as the lab that measured them."""

        def blank(config: Any, architecture: Config, prompts: int, kept: Mapping[str, Any] | None = None) -> Lab:
            values = dict(getattr(architecture, "values", {}) if kept is None else kept)
            return self.trace(config, architecture, prompts=prompts, values=values)

        def compute(config: Any, model: Model, batch: Batch, edited: Model | None = None) -> Lab:
            few = getattr(config, "control_prompts", None)
            runs = [Unedited(one, batch, None, few) for one in (model, edited or model)]
            return self.trace(config, model.config, unedited=runs[0], edited=runs[1], values=batch.values)

        return Values(blank, compute, self.digest, kept=True)  # type: ignore[arg-type]

    def noop(self, config: Any, architecture: Config) -> framework.Sweep | None:
        """The study's edits that must change nothing; None if it has none."""
        lab = self.traced(config, architecture)
        if not lab.noops:
            return None

        def conditions(config: Any, architecture: Config, found: Lab | None = None) -> Iterator[Condition]:
            yield framework.no_edit()
            for edit in (found or self.traced(config, architecture)).noops:
                yield Condition(edit.named(f"identity ({edit.label})"), NOOP_SERIES)

        columns = [measure for sweep in lab.sweeps.values() for measure in sweep.measures]
        asked = functools.reduce(merged, (measure.asks for measure in columns), sinkjax.Probe())
        values = self._values() if lab.measures else None
        prompts = min(NOOP_PROMPTS, config.prompts)
        return framework.Sweep(NOOP, conditions, (), asked, prompts, lambda _: lab.noop_inputs, values=values, optional=True)

    def maps(self, config: Any, architecture: Config) -> Shown:
        """The conditions whose maps and continuations a page shows."""
        lab = self.traced(config, architecture)
        labels = [NO_EDIT, *(one.sweep.label(case) for one in lab.shown for case in one.cases if case is not None)]
        bound = [value for one in lab.shown for case in one.cases if case for _, value in case.axes if isinstance(value, int)]
        names = tuple(dict.fromkeys(one.sweep.name for one in lab.shown))
        layers = drawn_layers(getattr(config, "map_layers", ()), lab.layers)
        return Shown(tuple(dict.fromkeys(labels)), names, layers, start=max([0, *bound]) + 1)

    def check(self, config: Any, architecture: Config) -> None:
        """Raise for what a run could not do, before it starts: positions, layers, equal rows, measures that fail."""
        layers_below(config, "map_layers", architecture.layers) if hasattr(config, "map_layers") else None
        lab, rows = self.traced(config, architecture), dict[tuple[str, str], str]()
        for name in self.prose.claims:
            if name not in lab.claims:
                raise SinkjaxError(f"{self.name}: prose: {unknown('claim', name, lab.claims)}")
        for sweep in lab.sweeps.values():
            for case in sweep.edits:
                label = sweep.label(case)
                if (other := rows.setdefault((sweep.title, label), sweep.name)) != sweep.name and sweep.measures:
                    raise SinkjaxError(f"the sweeps {other!r} and {sweep.name!r} both have a row {label!r}: give one a title")
            drawn = {*drawn_on(lab, sweep)} - {*sweep.measures}
            for measure in measures_of(lab, sweep):
                for one in made(measure, sweep) if measure not in drawn else ():
                    check_position(one, config.length)
                check_measure(next(made(measure, sweep)), architecture, config, asked_of(lab, sweep))

    # What is shown.

    def of(self, results: Results) -> tuple[Lab, Stored]:
        """The study traced on stores, and its numbers."""
        config, architecture = results.config, results.architecture
        lab = self.traced(config, None if self.trains else architecture)
        with contextlib.suppress(Absent):
            if lab.missing and lab.sweeps:  # stores of 0.3.0 keep none; their unedited condition gives what measures read
                run = Unedited(None, None, results[next(iter(lab.sweeps))], getattr(config, "control_prompts", None))
                lab = self.trace(config, architecture, unedited=run)
        return lab, Stored(config, architecture, results)

    def figures(self, config: Any, architecture: Config) -> list[Callable[[Results], Drawing | list[Drawing] | None]]:
        """Functions that draw the figures."""
        count = len(self.traced(config, None if self.trains else architecture).figures)
        return [functools.partial(self._drawn, number) for number in range(count)]

    def _drawn(self, number: int, results: Results) -> Drawing | list[Drawing] | None:
        lab, read = self.of(results)
        return lab.figures[number](read)

    def verdicts(self, results: Results) -> tuple[Verdict, ...]:
        """Every claim, judged."""
        lab, read = self.of(results)
        said = {name: Statement(filled(one.text, vars(results.config)), one.paper) for name, one in self.prose.claims.items()}
        return verdicts(lab, read, dataclasses.replace(read, twin=True, _read={}, _points={}), said)

    def notes(self, config: Any, results: Results) -> list[str]:
        """The notes, preceded by the definitions of the measures if the study trains models; sweeps define their own."""
        lab = self.of(results)[0]
        every = trained.measures_of(lab) if self.trains else []
        definitions = dict.fromkeys(measure.note for measure in every if measure.note)
        return [*definitions, *(filled(note, vars(config)) for note in self.prose.notes)]

    def rows_of_trainings(self, results: Results) -> list[Row]:
        """The summary of a study that trains its own models."""
        lab, read = self.of(results)
        return [*trained.rows(lab, read), *exact_rows(lab, read)]


def _has_twin(config: Any) -> bool:
    """Return whether a study is also measured on its model's untrained twin."""
    return bool(getattr(config, "twin", False)) and not str(config.model).startswith(UNTRAINED)


def claims_on(lab: Lab, name: str) -> list[Claim]:
    """Return the claims that read a sweep or a calculation."""
    return [claim for claim in lab.claims.values() if name in claim.read.measures or name in claim.read.named]


def judged_on(lab: Lab, name: str) -> bool:
    """Return whether a claim whose premise can hold reads a sweep or a calculation."""
    return any(claim.kind == "claim" and claim.possible for claim in claims_on(lab, name))


def measures_of(lab: Lab, sweep: Sweep) -> list[Measure]:
    """Return every measure that reads a sweep: in its summary, in claims and in figures."""
    found = dict.fromkeys(sweep.measures)
    for claim in lab.claims.values():
        found.update(dict.fromkeys(claim.read.measures.get(sweep.name, ())))
    return list(found | dict.fromkeys(drawn_on(lab, sweep)))


def drawn_on(lab: Lab, sweep: Sweep) -> list[Measure]:
    """Return the measures that figures alone read of a sweep."""
    return [measure for figure in lab.figures for measure in _drawn_on(figure, sweep)]


def _drawn_on(figure: Figure, sweep: Sweep) -> list[Measure]:
    """Return the measures among the arguments of a figure of a sweep; a function of layers gives one."""
    given = [*_flat([figure.arguments, figure.options])]
    if not any(one is sweep or (isinstance(one, Where) and one.sweep is sweep) for one in given):
        return []
    return [one if isinstance(one, Measure) else one(layers=None) for one in given if isinstance(one, Measure) or callable(one)]


def _flat(given: Iterable[Any]) -> Iterator[Any]:
    """Yield what lists, tuples and tables hold, all the way down."""
    for one in given:
        if isinstance(one, Mapping):
            yield from _flat(one.values())
        elif isinstance(one, list | tuple) and not isinstance(one, Where):
            yield from _flat(one)
        else:
            yield one


def asked_of(lab: Lab, sweep: Sweep) -> sinkjax.Probe:
    """Return the statistics that a sweep measures."""
    return functools.reduce(merged, (measure.asks for measure in measures_of(lab, sweep)), sinkjax.Probe())


def made(measure: Measure, sweep: Sweep) -> Iterator[Measure]:
    """Yield a measure for each value of the axis that it is read along, if any."""
    if measure.make is None:
        yield measure
    else:
        yield from map(measure.make, dict.fromkeys(dict(case.axes)[measure.axis] for case in sweep.edits))


def bound(measure: Measure, sweep: Sweep) -> Measure:
    """Return a measure of an axis as one of whole datasets, which reads each condition at its own value."""
    if measure.make is None:
        return measure
    make, axis = measure.make, measure.axis
    values = {sweep.label(case): dict(case.axes)[axis] for case in sweep.edits}
    first = next(iter(values.values()))

    def rows(data: xarray.Dataset, edited: bool) -> NDArray:
        read: dict[object, NDArray] = {}
        found = []
        for row, label in enumerate(map(str, data["edit"].values)):
            of = label.partition(" of ")[2].partition(": ")[0] if label.startswith(CONTROL) else label
            value = values.get(of, first)
            if value not in read:
                read[value] = read_measure(make(value), data)
            found.append(read[value][row if edited else 0])
        return np.stack(found)

    return dataclasses.replace(measure, of=lambda data: rows(data, True), baseline=lambda data: rows(data, False))


def check_position(measure: Measure, length: int) -> None:
    """Refuse a measure of a position that prompts do not have, or of a key that too few queries see."""
    place = measure.position
    if place is not None and place >= length:
        raise SinkjaxError(f"{measure.name}: position {place} is beyond prompts of {length} tokens")
    if place is not None and measure.seen and place + MIN_QUERIES > length:
        raise SinkjaxError(f"{measure.name}: key {place} is seen by fewer than {MIN_QUERIES} of {length} queries")


def check_measure(measure: Measure, architecture: Config, config: Any, probe: sinkjax.Probe) -> None:
    """Raise if a measure cannot read the results of this probe: try it on a dataset of their shape that holds one number."""
    shapes = record_shapes(architecture, config.length, probe, config.dtype)
    record = {}
    for name, array in shapes.items():  # strides of 0: a map takes no memory
        shape = (EDITS, PROMPTS, *array.shape[1:])
        record[name] = np.lib.stride_tricks.as_strided(np.full(1, 0.5, array.dtype), shape, (0,) * len(shape))
    try:
        read_measure(measure, to_dataset(Record(record, shapes.dims)))
    except Absent:  # which depends on the numbers
        return
    except SinkjaxError:
        raise
    except Exception as error:
        why = " ".join(str(error).split())[:WORDS]
        raise SinkjaxError(f"the measure {measure.name!r} fails: {type(error).__name__}: {why}") from error


# The conditions of a sweep.


def budgeted(lab: Lab, name: str) -> list[Point]:
    """Return the conditions of a sweep, those with controls with their label as the budget."""
    chosen = _controlled(lab, name) if lab.sweeps[name].control is not None else []
    return [dataclasses.replace(one, budget=one.label) if one.case in chosen else one for one in lab.sweeps[name].points()]


def claimed_points(lab: Lab, name: str) -> list[Point]:
    """Return the unedited model and the conditions that claims are about."""
    claimed = {case for claim in lab.claims.values() if claim.kind == "claim" for case in claim.read.cases.get(name, ())}
    return [one for one in budgeted(lab, name) if one.case is None or one.case in claimed]


def _controlled(lab: Lab, name: str) -> list[Case]:
    """Return the conditions with controls: the claimed ones, or all of a sweep that no claim is about."""
    cases = list(lab.sweeps[name].edits)
    if not claims_on(lab, name):
        return cases
    chosen = {case for claim in lab.claims.values() if claim.possible for case in claim.read.controlled.get(name, ())}
    return [case for case in cases if case in chosen]


def controls(lab: Lab, name: str) -> list[Point]:
    """Draw controls: no edit, then `controls` different random edits per condition, or all that exist."""
    sweep, rng = lab.sweeps[name], lab.rng(f"{lab.name} {name}")
    draw = sweep.control
    assert draw is not None
    found = [Point(sinkjax.compose(label=NO_EDIT), NO_EDIT)]
    points = {point.case: point for point in sweep.points()}
    for case in _controlled(lab, name):

        def one(case: Case = case) -> Edit:
            return draw(rng, case)

        # Placeholders of arrays are equal, but the labels that name their draw are not.
        edits = without_replacement(lab.settings.controls, one, lambda edit: (edit.label, content(edit)))
        for number, edit in enumerate(edits):
            label = f"control {number} of {points[case].label}: {edit.label}"
            found.append(Point(edit.named(label), CONTROL, points[case].x, points[case].label, case=case, draw=number))
    return found


def program(module: ModuleType, name: str, prose: Mapping[str, Any], what: str) -> Program:
    """Read a study from a module with a function `study` and a dataclass `Settings`.

    Args:
        module: The module.
        name: The study's name.
        prose: The title, question, notes, and claims (name -> statement, or {statement, paper}).
        what: The file of the prose, for errors.
    """
    check_keys(prose, ("title", "question", "notes", "claims"), f"{what}: prose")
    claims = {}
    for claim, said in (prose.get("claims") or {}).items():
        stated = {"statement": said} if isinstance(said, str) else said
        check_keys(stated, ("statement", "paper"), f"{what}: prose: {claim}")
        claims[claim] = Statement(one_line(stated.get("statement", claim)), one_line(stated.get("paper", "")))
    title = prose.get("title") or (module.study.__doc__ or name).strip().partition("\n")[0].rstrip(".")
    text = Prose(one_line(title), one_line(prose.get("question", "")), tuple(map(one_line, prose.get("notes", ()))), claims)
    digest = hashlib.sha256(inspect.getsource(module).encode()).hexdigest()
    return Program(name, module.study, module.Settings, text, issubclass(module.Settings, Trains), digest)
