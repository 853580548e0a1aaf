"""Numbers: the results of a study as its contrasts, premises and figures read them, one condition at a time.

A contrast is a function of `Numbers`. It is evaluated three times: on `Traced` numbers, which note what is read; on the stores of
the model; and on those of its untrained twin.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import intervals
from sinkjax.analysis.finite import only_finite, quietly
from sinkjax.errors import SinkjaxError
from sinkjax.lab.conditions import Point, Sweep, Where
from sinkjax.lab.measures import Measure
from sinkjax.lab.places import Case
from sinkjax.report.section import Drawing
from sinkjax.studies.folder import source

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

    from sinkjax.analysis.intervals import Intervals
    from sinkjax.studies.results import Results

CONTROLS, TWIN = "-controls", "-twin"  # endings of the stores of a sweep's controls, and of its claims on the untrained twin


class Numbers(ABC):
    """Access to numbers. `value`, `drawn` and `data` read them; everything else is made from these three.

    Attributes:
        settings: The study's settings.
        architecture: The model's config, or its plain fields where only stores are left.
    """

    settings: Any
    architecture: Any

    @abstractmethod
    def value(self, measure: Measure, sweep: Sweep, case: Case | None, edited: bool = True) -> NDArray:
        """Return a measure of one condition, or (edited=False) of the unedited model at its axes: float[document].

        case: None for the unedited model.
        """

    @abstractmethod
    def drawn(self, measure: Measure, sweep: Sweep, case: Case | None) -> NDArray | None:
        """Return a measure under each control of a condition: float[control, document]; None if it has none."""

    @abstractmethod
    def data(self, name: str) -> xarray.Dataset:
        """Return the results of a calculation or of a training."""

    def has(self, name: str) -> bool:
        """Return whether a calculation or a training has run; True on placeholders."""
        return True

    def exhausted(self, where: Where) -> bool:
        """Return whether the controls of each condition are all that exist of their kind."""
        return False

    def edited(self, measure: Measure, where: Where, edited: bool = True) -> NDArray:
        """Return a measure under some conditions, or (edited=False) of no edit at their axes: float[document(, condition)].

        It is in logarithms if the measure is compared in them.
        """
        found = [self.value(measure, where.sweep, case, edited) for case in where.cases]
        return _compared(measure, _joined(np.stack(found, axis=-1)))

    def unedited(self, measure: Measure, where: Where) -> NDArray:
        """Return `edited` of no edit, at the axes of some conditions."""
        return self.edited(measure, where, edited=False)

    def first(self, measure: Measure, sweep: Sweep) -> NDArray:
        """Return a measure of a sweep's unedited model, in its own unit: float[document]."""
        return self.value(measure, sweep, None)

    def controls(self, measure: Measure, where: Where) -> NDArray | None:
        """Return a measure under the controls of some conditions: float[control, document(, condition)], or None."""
        found = [self.drawn(measure, where.sweep, case) for case in where.cases]
        there = [one for one in found if one is not None and len(one)]
        if not there or len(there) < len(found):
            return None
        count = min(map(len, there))
        return _compared(measure, _joined(np.stack([one[:count] for one in there], axis=-1)))


def _compared(measure: Measure, values: NDArray) -> NDArray:
    return np.log(values) if measure.log else values


def _joined(values: NDArray) -> NDArray:
    """Drop a last axis of size 1."""
    return values[..., 0] if values.shape[-1] == 1 else values


class Deferred(Exception):
    """Raised while a study is traced by numbers whose shape only a calculation or a training gives."""


@dataclass
class Read:
    """What was read while a claim or a figure was traced."""

    measures: dict[str, list[Measure]] = field(default_factory=dict)  # by sweep
    cases: dict[str, dict[Case, None]] = field(default_factory=dict)  # by sweep
    controlled: dict[str, dict[Case, None]] = field(default_factory=dict)  # by sweep
    named: dict[str, None] = field(default_factory=dict)  # calculations and trainings


@dataclass(eq=False)
class Traced(Numbers):
    """Placeholders of two documents that note what is read."""

    settings: Any
    architecture: Any
    read: Read = field(default_factory=Read)

    def value(self, measure: Measure, sweep: Sweep, case: Case | None, edited: bool = True) -> NDArray:
        self.read.measures.setdefault(sweep.name, []).append(measure)
        self.read.cases.setdefault(sweep.name, {}).update({case: None} if case is not None else {})
        return np.ones(2)

    def drawn(self, measure: Measure, sweep: Sweep, case: Case | None) -> NDArray | None:
        self.read.measures.setdefault(sweep.name, []).append(measure)
        self.read.controlled.setdefault(sweep.name, {}).update({case: None} if case is not None else {})
        return None if sweep.control is None else np.ones((2, 2))

    def data(self, name: str) -> xarray.Dataset:
        self.read.named[name] = None
        raise Deferred(name)


@dataclass(eq=False)
class Stored(Numbers):
    """The stores of a run.

    Attributes:
        results: The stores by name, with the conditions of each.
        twin: Whether those of the untrained twin are read.
        stores: The stores that were read.
    """

    settings: Any
    architecture: Any
    results: Results
    twin: bool = False
    stores: dict[str, None] = field(default_factory=dict)
    _read: dict[tuple[str, str, object], NDArray] = field(default_factory=dict)
    _points: dict[str, tuple[Point, ...]] = field(default_factory=dict)

    def store(self, sweep: Sweep) -> str:
        """Return the name of a sweep's store."""
        return f"{sweep.name}{TWIN}" if self.twin else sweep.name

    def points(self, store: str) -> tuple[Point, ...]:
        """Return the conditions of a store."""
        if store not in self._points:
            self._points[store] = tuple(one for one in self.results.conditions(store) if isinstance(one, Point))
        return self._points[store]

    def rows(self, store: str) -> dict[Case | None, int]:
        """Return the row of each condition of a store."""
        return {point.case: row for row, point in enumerate(self.points(store))}

    def _values(self, measure: Measure, store: str, case: Case | None) -> NDArray:
        """Return a measure, at the axes of one condition, for every condition: float[condition, document]."""
        axis = dict(case.axes).get(measure.axis) if case is not None and measure.make else None
        key = (measure.name, store, axis)
        if key not in self._read:
            at = measure.make(axis) if measure.make else measure
            self._read[key] = read_measure(at, self.results[store])
        self.stores[store] = None
        return self._read[key]

    def value(self, measure: Measure, sweep: Sweep, case: Case | None, edited: bool = True) -> NDArray:
        store = self.store(sweep)
        row = self.rows(store)[case] if edited else 0
        return np.asarray(self._values(measure, store, case)[row])

    def drawn(self, measure: Measure, sweep: Sweep, case: Case | None) -> NDArray | None:
        rows = self._drawn(sweep, case)
        return self._values(measure, f"{sweep.name}{CONTROLS}", case)[rows] if rows else None

    def _drawn(self, sweep: Sweep, case: Case | None) -> list[int]:
        store = f"{sweep.name}{CONTROLS}"
        if self.twin or store not in self.results:
            return []
        return [row for row, point in enumerate(self.points(store)) if point.draw >= 0 and point.case == case]

    def exhausted(self, where: Where) -> bool:
        most = max((len(self._drawn(where.sweep, case)) for case in where.cases), default=0)
        return 0 < most < getattr(self.settings, "controls", 0)

    def data(self, name: str) -> xarray.Dataset:
        store = f"{name}{TWIN}" if self.twin else name
        self.stores[store] = None
        return self.results[store]

    def has(self, name: str) -> bool:
        return name in self.results

    def intervals(self, sweep: Sweep, values: NDArray) -> Intervals:
        """Return means and intervals of float[x, document], over a sweep's documents."""
        clusters = self.results.clusters(values.shape[-1], self.store(sweep))
        return intervals.intervals(values, seed=self.settings.seed, clusters=clusters)

    def drawing(self, name: str, figure: Figure, caption: str, *stores: str, bands: bool = True) -> Drawing:
        """Make a drawing with the model as its source, and a caption that ends with the prompts if they were read.

        Args:
            name: Name of the file.
            figure: The figure.
            caption: Its caption.
            *stores: The stores that it was made from, starting with the main one.
            bands: Whether it has interval bands.
        """
        first, *others = (self.results[store] for store in dict.fromkeys(stores))
        reads = "edit" in first.dims
        sampled, origin = source(first, bands and reads, others, text=reads)
        return Drawing(name, figure, f"{caption}{sampled}", origin)


def read_measure(measure: Measure, data: xarray.Dataset) -> NDArray:
    """Compute a measure of every condition of a sweep.

    Args:
        measure: The measure.
        data: The sweep's dataset.

    Returns:
        float64[edit, prompt], NaN in prompts that overflowed.

    Raises:
        SinkjaxError: The sweep lacks a statistic that the measure needs; it returns other than these numbers.
    """
    try:
        with quietly():
            return only_finite(measure.of(data), data, measure.name)
    except KeyError as error:
        if isinstance(error, SinkjaxError):
            raise
        held = ", ".join(map(str, data.data_vars))
        raise SinkjaxError(f"the measure {measure.name!r} needs {error}, which was not measured; there is {held}") from error
