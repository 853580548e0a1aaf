"""Read the conditions and measures of a study's claims, figures and summary from its stores."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sinkjax.errors import SinkjaxError
from sinkjax.report.section import Drawing
from sinkjax.studies.declaration import Claim, Study
from sinkjax.studies.grids import At, Bound, Point, matching
from sinkjax.studies.known import Unedited, measured
from sinkjax.studies.readouts import label_of, read_measure
from sinkjax.studies.scope import Contrast, Known, Measure, Scope
from sinkjax.studies.settings import config_type
from sinkjax.studies.words import Field, Word, words_in

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from sinkjax.studies.results import Results


@dataclass(frozen=True)
class Parts:
    """The numbers of a contrast that are needed to judge it.

    Attributes:
        contrast: float[document] or float[document, position].
        controls: The contrast under each control, float[control, document, ...] on the first documents; None without controls.
        whole: The denominator of the contrast's share, in the same shape; None without a whole.
        range: Lowest and highest value of the measure; None for a measure without bounds, in logarithms.
        unit: Unit of the contrast.
        label: The comparison as text.
        relative: Whether contrast + whole is the edited value of the measure.
        whole_range: Lowest and highest value of the whole; None for `range`.
        all_controls: Whether these are all possible controls.
    """

    contrast: NDArray
    controls: NDArray | None
    whole: NDArray | None
    range: tuple[float, float] | None
    unit: str
    label: str
    relative: bool = False
    whole_range: tuple[float, float] | None = None
    all_controls: bool = False


def facts_of(measure: Measure, *others: Measure | None) -> tuple[tuple[float, float] | None, str]:
    """Return the range of a measure and the unit of its differences; no range if others are compared that have another one."""
    facts = measure.meaning.facts
    span = facts.get("range")
    same = all(other is None or other.meaning.facts.get("range") == span for other in others)
    return span if same else None, "log" if facts.get("log") else facts.get("unit", "")


def ends_of(span: tuple[float, float] | None) -> tuple[float, float] | None:
    """Return the range of a measure's differences, from the range of its values."""
    return None if span is None else (span[0] - span[1], span[1] - span[0])


@dataclass(eq=False, repr=False)
class Readings:
    """Access to a study's stores for contrasts.

    Attributes:
        scope: Settings and architecture.
        results: Store by name, with `conditions(store)`.
        known: The study's known numbers, which are read from the unedited condition of a store.
        suffix: Suffix of the stores' names, such as the untrained twin's.
        trainings: Name -> word, in a study that trains its own models.
    """

    scope: Scope
    results: Results
    known: Mapping[str, Known]
    suffix: str = ""
    trainings: Mapping[str, Word] = field(default_factory=dict)
    _read: dict[object, NDArray] = field(default_factory=dict, init=False)
    _points: dict[str, tuple[Point, ...]] = field(default_factory=dict, init=False)

    def store(self, grid: str) -> str:
        """Return the name of a grid's store."""
        return f"{grid}{self.suffix}"

    def scope_of(self, grid: str, measure: Word) -> Scope:
        """Return a grid's scope, with the known numbers that a measure names."""
        wanted = {name: word for name, word in self.known.items() if name in field_names(measure)}
        if not wanted:
            return self.scope
        run = Unedited(None, None, self.results[grid], self.scope.config.control_prompts)
        return Scope(self.scope.config, self.scope.architecture, measured(wanted, self.scope, run))

    def of(self, measure: Measure, store: str, grid: str, bound: Bound) -> NDArray:
        """Read a measure as `raw` does, in logarithms if it has no upper bound."""
        found = self.raw(measure, store, grid, bound)
        return np.log(found) if measure.meaning.facts.get("log") else found

    def raw(self, measure: Measure, store: str, grid: str, bound: Bound) -> NDArray:
        """Read a measure for every condition of a store, with axes at given values: float[condition, document]."""
        key = (measure, store, tuple(entry for entry in bound if entry[0] in field_names(measure)))
        if key not in self._read:
            self._read[key] = read_measure(measure, self.scope_of(grid, measure).at(dict(bound)), self.results[store])
        return self._read[key]

    def value(self, measure: Measure, grid: str, row: int, edited: bool = True) -> NDArray:
        """Read a measure for one condition of a grid, or (edited=False) for no edit at its axes: float[document]."""
        points = self.points(self.store(grid))
        return self.raw(measure, self.store(grid), grid, points[row].bound)[row if edited else 0]

    def points(self, store: str) -> tuple[Point, ...]:
        if store not in self._points:
            self._points[store] = tuple(point for point in self.results.conditions(store) if isinstance(point, Point))
        return self._points[store]

    def rows(self, chosen: At) -> list[int]:
        """Return the rows of the chosen conditions in the store of their grid."""
        return matching(self.points(self.store(self.scope.get(chosen)[0])), chosen, self.scope)

    def edited(self, measure: Measure, chosen: At, edited: bool = True) -> NDArray:
        """Read a measure under the chosen conditions, or for no edit at the same axes: float[document(, condition)]."""
        grid = self.scope.get(chosen)[0]
        store, points = self.store(grid), self.points(self.store(grid))
        found = [self.of(measure, store, grid, points[row].bound)[row if edited else 0] for row in self.rows(chosen)]
        return joined(np.stack(found, axis=-1))

    def controls(self, measure: Measure, chosen: At) -> NDArray | None:
        """Read a measure under the chosen conditions' controls: float[control, document(, condition)]; None if there are none."""
        grid, drawn = self.scope.get(chosen)[0], self._drawn(chosen)
        if not drawn or not all(drawn.values()):
            return None
        points, count = self.points(grid), min(map(len, drawn.values()))
        columns = [self.of(measure, f"{grid}-controls", grid, points[row].bound)[rows[:count]] for row, rows in drawn.items()]
        return joined(np.stack(columns, axis=-1))

    def exhausted(self, chosen: At) -> bool:
        """Return whether the controls of each chosen condition are all that exist of their kind."""
        return 0 < max(map(len, self._drawn(chosen).values()), default=0) < self.scope.config.controls

    def _drawn(self, chosen: At) -> dict[int, list[int]]:
        """Map each chosen condition to its controls, rows of the grid's store to rows of its controls'; empty without these."""
        grid = self.scope.get(chosen)[0]
        if self.suffix or f"{grid}-controls" not in self.results:
            return {}
        points, controls = self.points(grid), [*enumerate(self.points(f"{grid}-controls"))]

        def same(one: Point, other: Point) -> bool:
            return other.draw >= 0 and (one.place, one.bound) == (other.place, other.bound)

        return {row: [number for number, control in controls if same(points[row], control)] for row in self.rows(chosen)}

    def drawing(self, name: str, figure: Figure, caption: str, *stores: str, bands: bool = True) -> Drawing:
        """Make a drawing with the model as its source, and a caption that ends with the prompts if they were read.

        Args:
            name: Name of the file.
            figure: The figure.
            caption: Its caption.
            *stores: The stores that it was made from, starting with the main one.
            bands: Whether it has interval bands.

        Returns:
            The drawing.
        """
        from sinkjax.studies.folder import source

        first, *others = (self.results[store] for store in dict.fromkeys(stores))
        reads = "edit" in first.dims
        sampled, origin = source(first, bands and reads, others, text=reads)
        return Drawing(name, figure, f"{caption}{sampled}", origin)

    def where(self, chosen: At) -> str:
        """Describe a choice of conditions."""
        grid, place, fixed = self.scope.get(chosen)
        points = self.points(self.store(grid))
        rows = self.rows(chosen)
        prefix = self.results.sweeps[grid].prefix
        if len(points) == 1:
            return prefix or grid
        if len(rows) == 1:
            return f"{prefix}: {points[rows[0]].label}" if prefix else points[rows[0]].label
        where = "" if place is None else next((point.where for point in points if point.place == place), str(place))
        return ", ".join(filter(None, (prefix, *(f"{name} {value}" for name, value in fixed.items()), where))) or grid

    def name(self, measure: Measure, chosen: At | None = None) -> str:
        """Describe a measure and conditions."""
        scope = self.scope if chosen is None else self.scope_of(self.scope.get(chosen)[0], measure)
        return label_of(measure, scope)


def joined(values: NDArray) -> NDArray:
    """Drop a last axis of size 1."""
    return values[..., 0] if values.shape[-1] == 1 else values


@functools.cache
def field_names(measure: Word) -> frozenset[str]:
    """Return the names of the fields in a measure."""
    return frozenset(one.name for one in words_in(measure) if isinstance(one, Field))


def claims_on(study: Study, name: str) -> list[Claim]:
    """Return the claims that read a grid or a computation."""
    return [claim for claim in study.claims.values() if name in read_by(*claim.words)]


def judged_on(study: Study, name: str, scope: Scope) -> bool:
    """Return whether a testable contrast reads a grid or a computation, which then also runs on the untrained twin."""
    return any(isinstance(claim.contrast, Contrast) and possible(claim, scope) for claim in claims_on(study, name))


def read_by(*parts: Word) -> set[str]:
    """Return the grids and computations that contrasts and premises read."""
    words = [word for word in words_in(parts) if isinstance(word, Word)]
    return {str(word.given[name]) for word in words for name in ("grid", "computation") if name in word.given}


def claimed_rows(study: Study, name: str, points: Sequence[Point], scope: Scope, controlled: bool = False) -> list[int]:
    """Return the conditions of a grid that claims are about.

    controlled: only those whose contrast has controls; all, for a grid without claims.
    """
    rows: dict[int, None] = {}
    if controlled and not claims_on(study, name):
        return list(range(1, len(points)))
    for title, claim in study.claims.items():
        for contrast in (claim.contrast, *claim.beside) if not controlled or possible(claim, scope) else ():
            facts = contrast.meaning.facts if contrast.given.get("controls", True) else {}
            for argument, entry in contrast.given.items():
                chosen = isinstance(entry, At) and entry.given["grid"] == name
                if chosen and (not controlled or argument in facts.get("controlled", ())):
                    try:
                        rows.update(dict.fromkeys(matching(points, entry, scope)))
                    except SinkjaxError as error:
                        raise SinkjaxError(f"claim {title}: {error}") from None
    return sorted(rows)


def possible(claim: Claim, scope: Scope) -> bool:
    """Return whether a claim's premise can hold in this architecture; otherwise its controls and twin do not run."""
    words = [word for word in words_in(claim.given) if isinstance(word, Word) and "architecture" in word.meaning.facts]
    return all(word.meaning.facts["architecture"](scope.architecture, **word.given) for word in words)


def measures_of(study: Study, name: str) -> list[Measure]:
    """Return every measure that reads a grid: in the summary (if its axes fit), in claims and in figures."""
    axes = {*(study.grids[name].given["over"] or {})}
    known = {*study.known, *(entry.name for entry in dataclasses.fields(config_type(study)))}
    found = dict.fromkeys(measure for measure in study.measures if field_names(measure) <= axes | known)
    for claim in claims_on(study, name):
        for contrast in claim.words:
            found.update(dict.fromkeys(one for one in words_in(contrast) if isinstance(one, Measure)))
    for word in study.figures:
        grids = {one.given["grid"] for one in words_in(word) if isinstance(one, At)}
        if name in ({word.given["over"]} if "over" in word.given else grids):
            found.update(dict.fromkeys(one for one in words_in(word) if isinstance(one, Measure)))
            if word.word == "activations":
                found.update(dict.fromkeys(study.measures))
    return list(found)
