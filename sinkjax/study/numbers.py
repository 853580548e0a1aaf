"""Numbers: the results of a study as its contrasts, premises and figures read them, one condition at a time.

A contrast is a function of `Numbers`. It is evaluated three times: on `Traced` numbers, which note what is read; on the stores of
the model; and on those of its untrained twin.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Concatenate, Literal, NamedTuple, ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkjax.analysis import intervals
from sinkjax.analysis.estimates import Absent
from sinkjax.analysis.intervals import Interval
from sinkjax.errors import SinkjaxError
from sinkjax.report.figures.lines import Line
from sinkjax.report.section import Drawing
from sinkjax.study.facts import over, source
from sinkjax.study.measures import Measure, read_measure
from sinkjax.study.places import Case
from sinkjax.study.work import CONTROL, Point, Sweep, Where

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

    from sinkjax.analysis.intervals import Intervals

DOCUMENTS = "documents"
Read = TypeVar("Read", bound="Numbers")
Given = ParamSpec("Given")
Computed = TypeVar("Computed")
CONTROLS, TWIN = "-controls", "-twin"  # endings of the stores of a sweep's controls, and of its claims on the untrained twin


class Numbers(ABC):
    """Access to numbers. The abstract methods read them, and the others are made from these.

    Attributes:
        settings: The study's settings.
        architecture: The model's config, or its plain fields where only stores are left.
    """

    settings: Any
    architecture: Any

    @abstractmethod
    def value(self, measure: Measure, sweep: Sweep, case: Case | None, edited: bool = True) -> NDArray[Any]:
        """Return a measure of one condition, or (edited=False) of the unedited model at its axes: float[document].

        case: None for the unedited model.
        """

    @abstractmethod
    def drawn(self, measure: Measure, sweep: Sweep, case: Case | None) -> NDArray[Any] | None:
        """Return a measure under each control of a condition: float[control, document]; None if it has none."""

    @abstractmethod
    def data(self, name: str) -> xarray.Dataset:
        """Return the results of a calculation or of a training."""

    def has(self, name: str) -> bool:
        """Return whether a calculation or a training has run; True on placeholders."""
        return True

    def about(self, sweep: Sweep) -> Mapping[str, Any]:
        """Return what a sweep's store says of its prompts: `bos`, `first_tokens`, ...; a placeholder while a study is traced."""
        return {"bos": "none", "first_tokens": [(0, "")]}

    def exhausted(self, where: Where) -> bool:
        """Return whether the controls of each condition are all that exist of their kind."""
        return False

    def edited(self, measure: Measure, where: Where, edited: bool = True) -> NDArray[Any]:
        """Return a measure under some conditions, or (edited=False) of no edit at their axes: float[document(, condition)].

        It is in logarithms if the measure is compared in them.
        """
        found = [self.value(measure, where.sweep, case, edited) for case in where.cases]
        return _compared(measure, _joined(np.stack(found, axis=-1)))

    def unedited(self, measure: Measure, where: Where) -> NDArray[Any]:
        """Return `edited` of no edit, at the axes of some conditions."""
        return self.edited(measure, where, edited=False)

    def first(self, measure: Measure, sweep: Sweep) -> NDArray[Any]:
        """Return a measure of a sweep's unedited model, in its own unit: float[document]."""
        return self.value(measure, sweep, None)

    @abstractmethod
    def untrained(self, measure: Measure, sweep: Sweep) -> NDArray[Any]:
        """Return `first` of the untrained twin, on the first documents."""

    def controls(self, measure: Measure, where: Where) -> NDArray[Any] | None:
        """Return a measure under the controls of some conditions: float[control, document(, condition)], or None."""
        found = [self.drawn(measure, where.sweep, case) for case in where.cases]
        there = [one for one in found if one is not None and len(one)]
        if not there or len(there) < len(found):
            return None
        count = min(map(len, there))
        return _compared(measure, _joined(np.stack([one[:count] for one in there], axis=-1)))


def from_results(function: Callable[Concatenate[Read, Given], Computed]) -> Callable[Given, Callable[[Read], Computed]]:
    """Decorate a function of results and arguments, such as a contrast: called with the arguments, it waits for the results."""

    @functools.wraps(function)
    def made(*given: Given.args, **named: Given.kwargs) -> Callable[[Read], Computed]:
        return lambda read: function(read, *given, **named)

    return made


def _compared(measure: Measure, values: NDArray[Any]) -> NDArray[Any]:
    return np.log(values) if measure.log else values


def _joined(values: NDArray[Any]) -> NDArray[Any]:
    """Drop a last axis of size 1."""
    return values[..., 0] if values.shape[-1] == 1 else values


class Deferred(Exception):
    """Raised while a study is traced by numbers whose shape only a calculation or a training gives."""


class Reading(NamedTuple):
    """Something that was read while a claim was traced.

    Attributes:
        how: "value" or "drawn", the method of `Numbers`; "premise" for a value that only a premise reads; "untrained" for a sweep
            whose unedited model is compared with the untrained twin; "data" for the results of a calculation or training.
        name: Name of the sweep, calculation or training.
        measure: The measure, if any.
        case: The condition; None for the unedited model.
    """

    how: Literal["value", "drawn", "premise", "untrained", "data"]
    name: str
    measure: Measure | None = None
    case: Case | None = None


@dataclass(eq=False)
class Traced(Numbers):
    """Placeholders of two documents that note each reading."""

    settings: Any
    architecture: Any
    read: list[Reading] = field(default_factory=list)

    def value(self, measure: Measure, sweep: Sweep, case: Case | None, edited: bool = True) -> NDArray[Any]:
        self.read.append(Reading("value", sweep.name, measure, case))
        return np.ones(2)

    def drawn(self, measure: Measure, sweep: Sweep, case: Case | None) -> NDArray[Any] | None:
        self.read.append(Reading("drawn", sweep.name, measure, case))
        return None if sweep.control is None else np.ones((2, 2))

    def untrained(self, measure: Measure, sweep: Sweep) -> NDArray[Any]:
        self.read.append(Reading("untrained", sweep.name, measure))
        return np.ones(2)

    def data(self, name: str) -> xarray.Dataset:
        self.read.append(Reading("data", name))
        raise Deferred(name)


@dataclass(eq=False)
class Stored(Numbers):
    """The stores of a run.

    Attributes:
        stores: Name -> dataset, of those that exist.
        conditions: Name of a store -> its conditions, with placeholders in their edits.
        unit: The sampling unit of means and intervals. "documents" is replaced by the stores' unit: documents, passages clustered
            by document, or prompts that are not text.
        absent: Name -> why a sweep did not run.
        twin: Whether the stores of the untrained twin are read.
        seen: Names of the stores that were read.
    """

    settings: Any
    architecture: Any
    stores: Mapping[str, xarray.Dataset]
    conditions: Callable[[str], Sequence[Point]] = lambda store: ()  # of calculations and trainings
    unit: str = DOCUMENTS
    absent: Mapping[str, str] = field(default_factory=dict)
    twin: bool = False
    seen: dict[str, None] = field(default_factory=dict)
    _read: dict[tuple[str, str, object], NDArray[Any]] = field(default_factory=dict)
    _points: dict[str, tuple[Point, ...]] = field(default_factory=dict)

    def __contains__(self, name: str) -> bool:
        return name in self.stores

    def __getitem__(self, name: str) -> xarray.Dataset:
        """Return a store by name, read into memory. Raises Absent for a sweep or training that did not run."""
        if name not in self.stores:
            raise Absent(self.absent.get(name, f"{name} has not run"))
        return self.stores[name].load()  # in place, so a store is read once

    @property
    def trained(self) -> dict[str, xarray.Dataset]:
        """Measurements on the models of each existing training, by its name."""
        return {name: self[name] for name in self.stores}

    def store(self, sweep: Sweep) -> str:
        """Return the name of a sweep's store."""
        return f"{sweep.name}{TWIN}" if self.twin else sweep.name

    def labels(self, store: str) -> list[str]:
        """Return the labels of a store's edits."""
        return [str(label) for label in self[store]["edit"].values]

    def points(self, store: str) -> tuple[Point, ...]:
        """Return the conditions of a store, in its order.

        Raises:
            Absent: The sweep did not run.
            SinkjaxError: The store holds other edits than the study.
        """
        if store not in self._points:
            there = [_drawn_label(label) if label.startswith(f"{CONTROL} ") else label for label in self.labels(store)]
            found = tuple(self.conditions(store))
            wanted = [point.label if point.draw < 0 else _drawn_label(point.label) for point in found]
            if there != wanted:
                odd = next((pair for pair in zip(there, wanted, strict=False) if pair[0] != pair[1]), (len(there), len(wanted)))
                raise SinkjaxError(f"the store and its config disagree about the edits: {odd[0]!r} and {odd[1]!r}")
            self._points[store] = found
        return self._points[store]

    def rows(self, store: str) -> dict[Case | None, int]:
        """Return the row of each condition of a store."""
        return {point.case: row for row, point in enumerate(self.points(store))}

    def every(self, measure: Measure, sweep: Sweep, store: str, case: Case | None) -> NDArray[Any]:
        """Return a measure, at the axes of one condition, of every condition in a store: float[condition, document]."""
        at = (case or next(iter(sweep.edits)))[measure.axis] if measure.make else None
        key = (measure.name, store, at)
        if key not in self._read:
            self._read[key] = read_measure(measure.make(at) if measure.make else measure, self[store])
        self.seen[store] = None
        return self._read[key]

    def value(self, measure: Measure, sweep: Sweep, case: Case | None, edited: bool = True) -> NDArray[Any]:
        store = self.store(sweep)
        rows = self.rows(store)
        if self.twin and edited and case not in rows:
            raise Absent("the untrained twin ran without edits")
        return np.asarray(self.every(measure, sweep, store, case)[rows[case] if edited else 0])

    def drawn(self, measure: Measure, sweep: Sweep, case: Case | None) -> NDArray[Any] | None:
        rows = self._drawn(sweep, case)
        return self.every(measure, sweep, f"{sweep.name}{CONTROLS}", case)[rows] if rows else None

    def untrained(self, measure: Measure, sweep: Sweep) -> NDArray[Any]:
        return np.asarray(self.every(measure, sweep, f"{sweep.name}{TWIN}", None)[0])

    def _drawn(self, sweep: Sweep, case: Case | None) -> list[int]:
        store = f"{sweep.name}{CONTROLS}"
        if self.twin or store not in self:
            return []
        return [row for row, point in enumerate(self.points(store)) if point.draw >= 0 and point.case == case]

    def exhausted(self, where: Where) -> bool:
        most = max((len(self._drawn(where.sweep, case)) for case in where.cases), default=0)
        return 0 < most < getattr(self.settings, "controls", 0)

    def data(self, name: str) -> xarray.Dataset:
        store = f"{name}{TWIN}" if self.twin else name
        self.seen[store] = None
        return self[store]

    def has(self, name: str) -> bool:
        return name in self

    def about(self, sweep: Sweep) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self[self.store(sweep)].attrs["study"]
        return found

    @property
    def over(self) -> str:
        """The sampling unit of means and intervals as text; for studies over documents see `facts.over`."""
        return over(self.stores.values()) if self.unit == DOCUMENTS else self.unit

    def clusters(self, count: int, *stores: str, genres: bool = False) -> NDArray[Any] | None:
        """Return the document of each of the first prompts, int[count], where several are from one; else None.

        Args:
            count: Number of prompts.
            *stores: The stores that the numbers come from, by default the first one; prompts that are not text have no documents.
            genres: Whether several genres, str[count], take precedence over documents.
        """
        about = [self.stores[name].attrs.get("study", {}) for name in stores or [*self.stores][:1] if name in self]
        for what, fewest in (("genres", 2), ("documents", 1))[not genres :] if self.unit == DOCUMENTS else ():
            found = max((one.get(what, ())[:count] for one in about), key=len, default=())
            if fewest <= len(set(found)) < count == len(found):
                return np.asarray(found)
        return None

    def interval(self, values: ArrayLike) -> Interval:
        """Return the mean of float[document] and its interval, by the study's seed and the documents of the first store."""
        values = np.asarray(values)
        return intervals.interval(values, seed=self.settings.seed, clusters=self.clusters(len(values)))

    def intervals(self, sweep: Sweep, values: NDArray[Any]) -> Intervals:
        """Return means and intervals of float[x, document], over a sweep's documents."""
        clusters = self.clusters(values.shape[-1], self.store(sweep))
        return intervals.intervals(values, seed=self.settings.seed, clusters=clusters)

    def curve(self, name: str, x: Sequence[float], values: NDArray[Any]) -> Line:
        """Return a line named `name` of float[document, x] (NaN where undefined) over x, with intervals over documents."""
        clusters = self.clusters(len(values))
        return Line(name, x, [*intervals.intervals(values, axis=0, seed=self.settings.seed, clusters=clusters)])

    def drawing(self, name: str, figure: Figure, caption: str, *stores: str, bands: bool = True) -> Drawing:
        """Make a drawing with the model as its source, and a caption that ends with the prompts if they were read.

        Args:
            name: Name of the file.
            figure: The figure.
            caption: Its caption.
            *stores: The stores that it was made from, starting with the main one.
            bands: Whether it has interval bands.
        """
        first, *others = (self[store] for store in dict.fromkeys(stores))
        reads = "edit" in first.dims
        sampled, origin = source(first, bands and reads, others, text=reads)
        return Drawing(name, figure, f"{caption}{sampled}", origin)


def _drawn_label(label: str) -> str:
    """Return the label of a control without its edit, which may be named after values that only a model gives."""
    return label.partition(": ")[0]
