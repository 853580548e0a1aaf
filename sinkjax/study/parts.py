"""The parts of a study, one for each of its stores: sweeps, controls, the untrained twin, maps, no-op edits, calculations.

A part that could not run or be shown is refused before any starts: equal rows, positions beyond the prompts, measures that fail.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import xarray

from sinkjax.analysis.estimates import Absent
from sinkjax.config_files.checks import MIN_QUERIES, layers_below, long_enough
from sinkjax.edits.edit import Edit
from sinkjax.errors import SinkjaxError, unknown
from sinkjax.probes.probe import Probe
from sinkjax.probes.record import Record, to_dataset
from sinkjax.study.lab import Lab
from sinkjax.study.measures import Measure, probe_of, read_measure
from sinkjax.study.numbers import CONTROLS, TWIN
from sinkjax.study.premises import needs
from sinkjax.study.settings import has_twin, own_bos
from sinkjax.study.views import continuations, drawn_layers, map_name, maps_probe
from sinkjax.study.work import CONTROL, UNEDITED, Calculation, Condition, Inputs, Sweep
from sinkjax.sweeps.plan import TOKENS_PER_CALL, record_shapes

if TYPE_CHECKING:
    from sinkjax.checkpoints.model import Model
    from sinkjax.study.work import Batch

NOOP = "identity"
ABSENT = "absent"  # attribute of the store of a sweep that did not run: why
SHOWN_PROMPTS = 3  # whose maps and continuations a page shows
PATIENCE = 1_000
EDITS, PROMPTS = 2, 3  # the size of the dataset that a measure is tried on
LONGEST = 300  # characters of an error in a measure's own code
Drawn = TypeVar("Drawn")


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
    role: Literal["sweep", "controls", "twin", "maps", "noop"]
    name: str
    of: Callable[[Lab], Sequence[Condition]]
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

    def planned(self, values: Mapping[str, Any] | None = None) -> list[Edit]:
        """Return the edits of its conditions, with placeholders for what only a model gives, except for these values of a run."""
        lab = self.lab.traced_with(self.lab.values if values is None else dict(values), self.prompts)
        return [condition.edit for condition in self.of(lab)]


def specs(lab: Lab) -> list[Part | Calculation]:
    """Return everything that a study traced on a model's architecture runs, in order.

    Raises:
        SinkjaxError: The model lacks a part that the study needs, or the settings do not fit it.
    """
    needs(lab.name, lab.architecture)
    check(lab)
    found: list[Part | Calculation] = []
    last = None  # the last maps
    for part in parts(lab):
        if isinstance(part, Part) and part.inputs.bos == "own":
            try:
                part = dataclasses.replace(part, inputs=Inputs(part.inputs.kind, own_bos(lab.settings)))
            except Absent as error:
                if part.role == "maps":
                    continue
                part = _absent(part.name, str(error))
        found.append(part)
        last = part if isinstance(part, Part) and part.role == "maps" else last
    if last is not None:
        found.insert(found.index(last) + 1, _continued(last))
    return found


def check(lab: Lab) -> None:
    """Refuse a study that could not run or be shown.

    Raises:
        SinkjaxError: A statement is about no claim; two sweeps have rows with one label; a measure reads a position that prompts
            do not have, or fails on results of the shape that its sweep makes.
    """
    if hasattr(lab.settings, "map_layers"):
        layers_below(lab.settings, "map_layers", lab.layers)
    for name in lab.study.prose.claims:
        if name not in lab.claims:
            raise SinkjaxError(f"{lab.name}: prose: {unknown('claim', name, lab.claims)}")
    rows: dict[tuple[str, str], str] = {}
    positions: list[Measure] = []
    for sweep in lab.sweeps.values():
        for label in map(sweep.label, sweep.edits):
            if (other := rows.setdefault((sweep.title, label), sweep.name)) != sweep.name and sweep.measures:
                raise SinkjaxError(f"the sweeps {other!r} and {sweep.name!r} both have a row {label!r}: give one a title")
        only_drawn = {*lab.drawn_on(sweep)} - {*sweep.measures}
        positions += [one for measure in lab.measures_on(sweep) if measure not in only_drawn for one in _made(measure, sweep)]
    check_positions(positions, lab.settings.length)
    for sweep in lab.sweeps.values():
        measures = lab.measures_on(sweep)
        for measure in measures:
            check_measure(_made(measure, sweep)[0], lab, probe_of(measures, sweep.probe))


def _made(measure: Measure, sweep: Sweep) -> list[Measure]:
    """Return a measure for each value of the axis that it is made for, if any."""
    if measure.make is None:
        return [measure]
    return [measure.make(value) for value in dict.fromkeys(case[measure.axis] for case in sweep.edits)]


def check_positions(measures: Sequence[Measure], length: int) -> None:
    """Refuse measures of positions that prompts do not have, or of keys that too few queries see, all at once."""
    needs = []
    for measure in measures:
        if isinstance(position := measure.position, int):
            what = "key" if measure.seen and position < length else "position"
            needs.append((f"{measure.name}: {what} {position}", position, MIN_QUERIES if measure.seen else 1))
    long_enough(needs, length)


def check_measure(measure: Measure, lab: Lab, probe: Probe) -> None:
    """Raise if a measure cannot read the results of this probe: try it on a dataset of their shape that holds one number."""
    shapes = record_shapes(lab.architecture, lab.settings.length, probe, lab.settings.dtype)
    record = {  # broadcast: a map takes no memory
        name: np.broadcast_to(np.full((), 0.5, array.dtype), (EDITS, PROMPTS, *array.shape[1:])) for name, array in shapes.items()
    }
    try:
        read_measure(measure, to_dataset(Record(record, shapes.dims)))
    except Absent:  # which depends on the numbers
        return
    except SinkjaxError:
        raise
    except Exception as error:
        why = " ".join(str(error).split())[:LONGEST]
        raise SinkjaxError(f"the measure {measure.name!r} fails: {type(error).__name__}: {why}") from error


def parts(lab: Lab) -> Iterator[Part | Calculation]:
    """Yield the parts of a traced study. The BOS of their inputs may still be "own"; continuations are left out."""
    settings = lab.settings
    for sweep in lab.sweeps.values():
        yield from _of_sweep(lab, sweep)
    for name, calculation in lab.calculations.items():
        yield calculation
        if lab.judged_on(name) and has_twin(settings):
            yield dataclasses.replace(calculation, name=f"{name}{TWIN}", twin=True)
    labels = {selection.sweep.label(case) for selection in lab.shown for case in selection.cases if case is not None}
    for number, sweep in enumerate(dict.fromkeys(one.sweep for one in lab.shown)):
        probe = maps_probe(settings.length, drawn_layers(getattr(settings, "map_layers", ()), lab.layers))
        shown, inputs = min(SHOWN_PROMPTS, settings.prompts), Inputs(sweep.inputs, sweep.bos)
        yield Part(lab, "maps", map_name(sweep.name, number), partial(_labelled, sweep.name, labels), probe, shown, inputs)
    if lab.noops:
        probe = probe_of(measure for sweep in lab.sweeps.values() for measure in sweep.measures)
        yield Part(lab, "noop", NOOP, _noops, probe, _few(settings, settings.prompts), lab.noop_inputs)


def _of_sweep(lab: Lab, sweep: Sweep) -> Iterator[Part]:
    """Yield a sweep, its controls, and its claims' conditions on the untrained twin."""
    name, settings, probe = sweep.name, lab.settings, probe_of(lab.measures_on(sweep), sweep.probe)
    prompts = settings.prompts if sweep.prompts is None else sweep.prompts
    few, judged, inputs = _few(settings, prompts), lab.judged_on(name), Inputs(sweep.inputs, sweep.bos)
    yield Part(lab, "sweep", name, lambda lab: lab.sweeps[name].conditions(), probe, prompts, inputs)
    if sweep.control is not None and (judged or not lab.claims_on(name)):
        yield Part(lab, "controls", f"{name}{CONTROLS}", partial(controls, name=name), probe, few, inputs)
    wanted = judged and has_twin(settings)
    if wanted or any(claim.cases(name, "untrained") for claim in lab.claims.values()):  # a premise needs the twin without edits
        yield Part(lab, "twin", f"{name}{TWIN}", partial(_claimed, name, wanted), probe, few, inputs)


def _few(settings: Any, prompts: int) -> int:
    """Return the number of prompts of the controls of a sweep on so many prompts."""
    return min(getattr(settings, "control_prompts", prompts), prompts)


def _claimed(name: str, wanted: bool, lab: Lab) -> list[Condition]:
    """Return the baseline of a sweep and, if wanted, the conditions that claims are about."""
    claims = [claim for claim in lab.claims.values() if claim.kind == "claim" and wanted]
    claimed = {None, *(case for claim in claims for case in claim.cases(name))}
    return [condition for condition in lab.sweeps[name].conditions() if condition.case in claimed]


def _labelled(name: str, labels: set[str], lab: Lab) -> list[Condition]:
    return [one for one in lab.sweeps[name].conditions() if one.case is None or one.label in labels]


def _noops(lab: Lab) -> list[Condition]:
    """Return no edit, and the study's edits that must change nothing."""
    return [Condition(UNEDITED), *(Condition(edit.named(f"identity ({edit.label})")) for edit in lab.noops)]


def controls(lab: Lab, name: str) -> list[Condition]:
    """Draw the controls of a sweep: no edit, then `controls` different random edits per condition, or all that exist."""
    sweep, rng = lab.sweeps[name], lab.rng(f"{lab.name} {name}")
    draw = sweep.control
    assert draw is not None
    claimed = {case for claim in lab.claims.values() if claim.possible for case in claim.cases(name, "drawn")}
    drawn = [Condition(sweep.baseline)]
    for case in [case for case in sweep.edits if case in claimed] if lab.claims_on(name) else sweep.edits:
        # Placeholders of arrays are equal, but the labels that name their draw are not.
        edits = without_replacement(lab.settings.controls, partial(draw, rng, case), lambda edit: (edit.label, content(edit)))
        for number, edit in enumerate(edits):
            label = f"{CONTROL} {number} of {sweep.label(case)}: {edit.label}"
            drawn.append(Condition(edit.named(label), case, number))
    return drawn


def content(edit: Edit) -> Hashable:
    """Return a hashable value that edits share if they differ in nothing but the label."""
    terms = []
    for term in edit.terms:
        arrays = term.value if isinstance(term.value, tuple) else (term.value,)  # a low-rank change of weights has two factors
        terms.append((dataclasses.replace(term, value=None), *(np.asarray(array).tobytes() for array in arrays)))
    return tuple(terms)


def without_replacement(count: int, draw: Callable[[], Drawn], same: Callable[[Drawn], Hashable]) -> list[Drawn]:
    """Return different draws of a control: `count` of them, or all that there are.

    Args:
        count: The number of draws.
        draw: Returns a random one.
        same: A key that two draws share if they are the same control.

    Returns:
        The draws in their order; fewer than `count` once `PATIENCE` draws in a row were all known (one of a population of 62 is
        missed with a probability of 1e-6).
    """
    found: dict[Hashable, Drawn] = {}
    misses = 0
    while len(found) < count and misses < PATIENCE:
        drawn = draw()
        misses = misses + 1 if same(drawn) in found else 0
        found.setdefault(same(drawn), drawn)
    return list(found.values())


def _continued(shown: Part) -> Calculation:
    """Return the continuations of the prompts of some maps, from beyond the positions that their edits name."""
    lab = shown.lab
    named = [value for one in lab.shown for case in one.cases if case for _, value in case.axes if isinstance(value, int)]

    def conditions(model: Model, batch: Batch) -> Sequence[Condition]:
        return shown.of(lab.on(model, batch))

    return continuations(conditions, shown.prompts, shown.inputs, start=max([0, *named]) + 1)


def _absent(name: str, why: str) -> Calculation:
    """Return the store of a sweep that does not run, which says why."""
    return Calculation(name, lambda model, batch: xarray.Dataset(attrs={ABSENT: why}), (), 1, Inputs(bos="none"))
