"""The parts of a study, one for each of its stores: sweeps, controls, the untrained twin, maps, no-op edits, calculations.

A part that could not run or be shown is refused before any starts: equal rows, positions beyond the prompts, measures that fail.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import xarray

from sinkjax.analysis.estimates import Absent
from sinkjax.config_files.checks import MIN_QUERIES, layers_below, long_enough
from sinkjax.edits.edit import Edit
from sinkjax.errors import SinkjaxError, unknown
from sinkjax.model.config import Config
from sinkjax.probes.probe import Probe
from sinkjax.probes.record import Record, to_dataset
from sinkjax.study.measures import Measure, probe_of, read_measure
from sinkjax.study.numbers import CONTROLS, TWIN
from sinkjax.study.premises import needs
from sinkjax.study.settings import has_twin, own_bos
from sinkjax.study.trace import Lab, Program
from sinkjax.study.views import continuations, drawn_layers, map_name, maps_probe
from sinkjax.study.work import CONTROL, NO_EDIT, UNEDITED, Calculation, Inputs, Point, Sweep
from sinkjax.sweeps.plan import TOKENS_PER_CALL, record_shapes

if TYPE_CHECKING:
    from sinkjax.checkpoints.model import Model
    from sinkjax.study.work import Batch

NOOP, NOOP_SERIES = "identity", "identity edit"
ABSENT = "absent"  # attribute of the store of a sweep that did not run: why
SHOWN_PROMPTS = 3  # whose maps and continuations a page shows
PATIENCE = 1_000
EDITS, PROMPTS = 2, 3  # the size of the dataset that a measure is tried on
WORDS = 300  # characters of an error in a measure's own code
Drawn = TypeVar("Drawn")
Role = Literal["sweep", "controls", "twin", "maps", "noop"]


@dataclass(frozen=True, eq=False)
class Part:
    """Conditions that run on the same prompts into one store.

    Attributes:
        lab: The study.
        role: Its purpose.
        name: Name of its store.
        of: Chooses or draws the conditions of a traced study, the baseline first.
        probe: What is measured.
        prompts: Number of prompts.
        inputs: Kind of prompts.
    """

    lab: Lab
    role: Role
    name: str
    of: Callable[[Lab], Sequence[Point]]
    probe: Probe
    prompts: int
    inputs: Inputs

    @property
    def twin(self) -> bool:
        """Whether it runs on the model's untrained twin."""
        return self.role == "twin"

    @property
    def optional(self) -> bool:
        """Whether a folder is finished without it."""
        return self.role in ("maps", "noop") or (self.role == "twin" and not has_twin(self.lab.settings))

    def batch_size(self, device: str) -> int | None:
        """Return the prompts of a call, if those of the controls fill a device of this kind: then all parts share programs."""
        few = _few(self.lab.settings, self.lab.settings.prompts)
        return few if few * self.lab.settings.length >= TOKENS_PER_CALL[device] else None

    def planned(self, values: Mapping[str, Any] | None = None) -> list[Point]:
        """Return its conditions with placeholders for what only a model gives, except for these values of a run."""
        lab = self.lab
        if lab.needs_model:
            lab = lab.again(prompts=self.prompts, values=dict(values or lab.values))
        return [*self.of(lab)]

    @property
    def edits(self) -> list[Edit]:
        """The edits of its planned conditions, as `sinkjax.sweep` takes them."""
        return [point.edit for point in self.planned()]


def specs(program: Program, settings: Any, architecture: Config) -> list[Part | Calculation]:
    """Return everything that a study runs on a model, in order.

    Raises:
        SinkjaxError: The model lacks a part that the study needs, or the settings do not fit it.
    """
    needs(program.name, architecture)
    lab = program.trace(settings, architecture)
    check(lab)
    found: list[Part | Calculation] = []
    last = -1  # the last maps
    for part in parts(lab):
        if isinstance(part, Part) and part.inputs.bos == "own":
            try:
                part = dataclasses.replace(part, inputs=Inputs(part.inputs.kind, own_bos(settings)))
            except Absent as error:
                if part.role == "maps":
                    continue
                part = _absent(part.name, str(error))
        last = len(found) if isinstance(part, Part) and part.role == "maps" else last
        found.append(part)
    if isinstance(shown := found[last] if last >= 0 else None, Part):
        found.insert(last + 1, _continued(shown))
    return found


def check(lab: Lab) -> None:
    """Refuse a study that could not run or be shown.

    Raises:
        SinkjaxError: A statement is about no claim; two sweeps have rows with one label; a measure reads a position that prompts
            do not have, or fails on results of the shape that its sweep makes.
    """
    if hasattr(lab.settings, "map_layers"):
        layers_below(lab.settings, "map_layers", lab.layers)
    for name in lab.program.prose.claims:
        if name not in lab.claims:
            raise SinkjaxError(f"{lab.name}: prose: {unknown('claim', name, lab.claims)}")
    rows: dict[tuple[str, str], str] = {}
    read: list[Measure] = []
    for sweep in lab.sweeps.values():
        for case in sweep.edits:
            label = sweep.label(case)
            if (other := rows.setdefault((sweep.title, label), sweep.name)) != sweep.name and sweep.measures:
                raise SinkjaxError(f"the sweeps {other!r} and {sweep.name!r} both have a row {label!r}: give one a title")
        measures = lab.measures_on(sweep)
        drawn = {*lab.drawn_on(sweep)} - {*sweep.measures}
        read += [one for measure in measures if measure not in drawn for one in _made(measure, sweep)]
    check_positions(read, lab.settings.length)
    for sweep in lab.sweeps.values():
        measures = lab.measures_on(sweep)
        probe = probe_of(measures, sweep.probe)
        for measure in measures:
            check_measure(next(_made(measure, sweep)), lab, probe)


def _made(measure: Measure, sweep: Sweep) -> Iterator[Measure]:
    """Yield a measure for each value of the axis that it is read along, if any."""
    if measure.make is None:
        yield measure
    else:
        yield from map(measure.make, dict.fromkeys(case[measure.axis] for case in sweep.edits))


def check_positions(measures: Iterable[Measure], length: int) -> None:
    """Refuse measures of positions that prompts do not have, or of keys that too few queries see, all at once."""
    needs = []
    for measure in measures:
        if (place := measure.position) is not None:
            seen = measure.seen and place < length
            needs.append((f"{measure.name}: {'key' if seen else 'position'} {place}", place, MIN_QUERIES if measure.seen else 1))
    long_enough(needs, length)


def check_measure(measure: Measure, lab: Lab, probe: Probe) -> None:
    """Raise if a measure cannot read the results of this probe: try it on a dataset of their shape that holds one number."""
    shapes = record_shapes(lab.architecture, lab.settings.length, probe, lab.settings.dtype)
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


def parts(lab: Lab) -> Iterator[Part | Calculation]:
    """Yield the parts of a traced study. The BOS of their inputs may still be "own"; continuations are left out."""
    for sweep in lab.sweeps.values():
        yield from _of_sweep(lab, sweep)
    for name, calculation in lab.calculations.items():
        yield calculation
        if lab.judged_on(name) and has_twin(lab.settings):
            yield dataclasses.replace(calculation, name=f"{name}{TWIN}", twin=True)
    shown = [(one.sweep, case) for one in lab.shown for case in one.cases if case is not None]
    labels = {NO_EDIT, *(sweep.label(case) for sweep, case in shown)}
    if lab.shown:
        asked = maps_probe(lab.settings.length, drawn_layers(getattr(lab.settings, "map_layers", ()), lab.layers))
    for number, sweep in enumerate(dict.fromkeys(one.sweep for one in lab.shown)):
        few = min(SHOWN_PROMPTS, lab.settings.prompts)
        yield Part(lab, "maps", map_name(sweep.name, number), partial(_labelled, sweep.name, labels), asked, few, _inputs(sweep))
    if lab.noops:
        asked = probe_of(measure for sweep in lab.sweeps.values() for measure in sweep.measures)
        yield Part(lab, "noop", NOOP, _noops, asked, _few(lab.settings, lab.settings.prompts), lab.noop_inputs)


def _of_sweep(lab: Lab, sweep: Sweep) -> Iterator[Part]:
    """Yield a sweep, its controls, and its claims' conditions on the untrained twin."""
    name, settings, asked = sweep.name, lab.settings, probe_of(lab.measures_on(sweep), sweep.probe)
    prompts = settings.prompts if sweep.prompts is None else sweep.prompts
    few, judged = _few(settings, prompts), lab.judged_on(name)
    yield Part(lab, "sweep", name, lambda lab: lab.sweeps[name].points(), asked, prompts, _inputs(sweep))
    if sweep.control is not None and (judged or not lab.claims_on(name)):
        yield Part(lab, "controls", f"{name}{CONTROLS}", partial(controls, name=name), asked, few, _inputs(sweep))
    wanted = judged and has_twin(settings)
    if wanted or any(claim.cases(name, "untrained") for claim in lab.claims.values()):  # a premise needs the twin without edits
        of = partial(_claimed, name) if wanted else lambda lab: lab.sweeps[name].points()[:1]
        yield Part(lab, "twin", f"{name}{TWIN}", of, asked, few, _inputs(sweep))


def _few(settings: Any, prompts: int) -> int:
    """Return the number of prompts of the controls of a sweep on so many prompts."""
    return min(getattr(settings, "control_prompts", prompts), prompts)


def _inputs(sweep: Sweep) -> Inputs:
    return Inputs(sweep.inputs, sweep.bos)


def _claimed(name: str, lab: Lab) -> list[Point]:
    """Return the baseline of a sweep and the conditions that claims are about."""
    claimed = {case for claim in lab.claims.values() if claim.kind == "claim" for case in claim.cases(name)}
    return [point for point in lab.sweeps[name].points() if point.case is None or point.case in claimed]


def _labelled(name: str, labels: set[str], lab: Lab) -> list[Point]:
    return [point for point in lab.sweeps[name].points() if point.label in labels]


def _noops(lab: Lab) -> list[Point]:
    """Return no edit, and the study's edits that must change nothing."""
    return [Point(UNEDITED, NO_EDIT), *(Point(edit.named(f"identity ({edit.label})"), NOOP_SERIES) for edit in lab.noops)]


def controls(lab: Lab, name: str) -> list[Point]:
    """Draw the controls of a sweep: no edit, then `controls` different random edits per condition, or all that exist."""
    sweep, rng = lab.sweeps[name], lab.rng(f"{lab.name} {name}")
    draw = sweep.control
    assert draw is not None
    baseline, *rest = sweep.points()
    points = {point.case: point for point in rest}
    found = [baseline]
    claimed = {case for claim in lab.claims.values() if claim.possible for case in claim.cases(name, "drawn")}
    for case in [case for case in sweep.edits if case in claimed] if lab.claims_on(name) else sweep.edits:
        # Placeholders of arrays are equal, but the labels that name their draw are not.
        edits = without_replacement(lab.settings.controls, partial(draw, rng, case), lambda one: (one.label, content(one)))
        for number, edit in enumerate(edits):
            label = f"{CONTROL} {number} of {points[case].label}: {edit.label}"
            found.append(Point(edit.named(label), CONTROL, points[case].x, case=case, draw=number))
    return found


def content(edit: Edit) -> Hashable:
    """An edit without its label."""
    found = []
    for term in edit.terms:
        arrays = term.value if isinstance(term.value, tuple) else (term.value,)  # a low-rank change of weights has two factors
        found.append((dataclasses.replace(term, value=None), *(np.asarray(array).tobytes() for array in arrays)))
    return tuple(found)


def without_replacement(count: int, draw: Callable[[], Drawn], same: Callable[[Drawn], Hashable]) -> list[Drawn]:
    """Different draws of a control: `count` of them, or all that there are.

    Args:
        count: How many.
        draw: Returns one at random.
        same: A key that two draws share if they are the same control.

    Returns:
        The draws in their order; fewer than `count` once `PATIENCE` draws in a row were all known (one of a population of 62 is
        missed with a probability of 1e-6).
    """
    found: dict[Hashable, Drawn] = {}
    misses = 0
    while len(found) < count and misses < PATIENCE:
        one = draw()
        misses = misses + 1 if same(one) in found else 0
        found.setdefault(same(one), one)
    return list(found.values())


def _continued(shown: Part) -> Calculation:
    """Return the continuations of the prompts of some maps, from beyond the positions that their edits name."""
    lab = shown.lab
    named = [value for one in lab.shown for case in one.cases if case for _, value in case.axes if isinstance(value, int)]

    def points(model: Model, batch: Batch) -> Sequence[Point]:
        return shown.of(lab.on(model, batch))

    return continuations(points, shown.prompts, shown.inputs, start=max([0, *named]) + 1)


def _absent(name: str, why: str) -> Calculation:
    """Return the store of a sweep that does not run, which says why."""

    def compute(model: Model, batch: Batch) -> xarray.Dataset:
        return xarray.Dataset(attrs={ABSENT: why})

    return Calculation(name, compute, (), 1, Inputs(bos="none"))
