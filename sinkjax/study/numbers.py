"""Numbers: the results of a study as its contrasts, premises and figures read them, one condition at a time.

A contrast is a function of `Numbers`. It is evaluated three times: while the study is traced, on placeholders that note what it
reads; on the stores of the model; and on the stores of its untrained twin.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Concatenate, Literal, NamedTuple, ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkjax.analysis import intervals
from sinkjax.analysis.estimates import Absent
from sinkjax.analysis.intervals import Interval
from sinkjax.checkpoints.presets import named
from sinkjax.errors import SinkjaxError
from sinkjax.report.figures.lines import Line
from sinkjax.report.section import Drawing
from sinkjax.study.layers import Layers
from sinkjax.study.measures import Measure, read_measure
from sinkjax.study.work import CONTROL, Condition, Selection, Sweep

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

    from sinkjax.analysis.intervals import Intervals

Given = ParamSpec("Given")
Computed = TypeVar("Computed")
DOCUMENTS = "documents"
CONTROLS, TWIN = "-controls", "-twin"  # endings of the stores of a sweep's controls, and of its claims on the untrained twin
TRAINED_WITH = "trained_with"  # in a store of prompts without it, the text of the token that the model had before its texts


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
    case: Layers | None = None


@dataclass(eq=False)
class Numbers:
    """The stores of a run, or placeholders of two documents.

    Attributes:
        settings: The study's settings.
        architecture: The model's config, or its plain fields if only stores are left.
        stores: Name -> dataset, for those that exist; None for placeholders.
        conditions_of: Name of a store -> its conditions, with placeholders in their edits.
        unit: The sampling unit of means and intervals. "documents" is replaced by the stores' unit: documents, passages clustered
            by document, or prompts that are not text.
        absent: Name -> why a sweep did not run.
        twin: Whether the stores of the untrained twin are read.
        seen: Names of the stores that were read.
        readings: The values read from placeholders.
    """

    settings: Any
    architecture: Any
    stores: Mapping[str, xarray.Dataset] | None = None
    conditions_of: Callable[[str], Sequence[Condition]] = lambda store: ()  # of calculations and trainings
    unit: str = DOCUMENTS
    absent: Mapping[str, str] = field(default_factory=dict)
    twin: bool = False
    seen: dict[str, None] = field(default_factory=dict)
    readings: list[Reading] = field(default_factory=list)
    _values: dict[tuple[str, str, object], NDArray[Any]] = field(default_factory=dict)
    _conditions: dict[str, tuple[Condition, ...]] = field(default_factory=dict)

    # Stores.

    def __contains__(self, name: str) -> bool:
        """Return whether a sweep, a calculation or a training has run; True on placeholders."""
        return self.stores is None or name in self.stores

    def __getitem__(self, name: str) -> xarray.Dataset:
        """Return a store by name, read into memory. Raises Absent for a sweep or training that did not run."""
        if self.stores is None:
            raise Deferred(name)
        if name not in self.stores:
            raise Absent(self.absent.get(name, f"{name} has not run"))
        return self.stores[name].load()  # in place, so a store is read once

    @property
    def trained(self) -> dict[str, xarray.Dataset]:
        """Measurements on the models of each existing training, by its name."""
        return {name: self[name] for name in self.stores or ()}

    def store(self, sweep: Sweep) -> str:
        """Return the name of a sweep's store."""
        return f"{sweep.name}{TWIN}" if self.twin else sweep.name

    def conditions(self, store: str) -> tuple[Condition, ...]:
        """Return the conditions of a store, in its order.

        Raises:
            Absent: The sweep did not run.
            SinkjaxError: The store has other edits than the study.
        """
        if store not in self._conditions:
            # A control's edit may be named after values that only a model gives.
            stored = [label.partition(": ")[0] if label.startswith(f"{CONTROL} ") else label for label in labels(self[store])]
            conditions = tuple(self.conditions_of(store))
            wanted = [one.label if one.draw < 0 else one.label.partition(": ")[0] for one in conditions]
            if stored != wanted:
                pairs = zip(stored, wanted, strict=False)
                odd = next((pair for pair in pairs if pair[0] != pair[1]), (len(stored), len(wanted)))
                raise SinkjaxError(f"the store and its config disagree about the edits: {odd[0]!r} and {odd[1]!r}")
            self._conditions[store] = conditions
        return self._conditions[store]

    def rows(self, store: str) -> dict[Layers | None, int]:
        """Return the row of each condition of a store."""
        return {condition.case: row for row, condition in enumerate(self.conditions(store))}

    def drawn_rows(self, store: str) -> dict[int, Layers | None]:
        """Return the condition of each control in a store; empty if there is no such store."""
        conditions = self.conditions(store) if store in self and not self.twin else ()
        return {row: condition.case for row, condition in enumerate(conditions) if condition.draw >= 0}

    # Measures.

    def every(self, measure: Measure, sweep: Sweep, store: str, case: Layers | None) -> NDArray[Any]:
        """Return a measure, at the axes of one condition, for every condition in a store: float[condition, document]."""
        at = (case or next(iter(sweep.edits)))[measure.axis] if measure.make else None
        key = (measure.name, store, at)
        if key not in self._values:
            self._values[key] = read_measure(measure.make(at) if measure.make else measure, self[store])
        self.seen[store] = None
        return self._values[key]

    def _noted(self, *reading: Any) -> bool:
        """Note a reading of placeholders; return whether this is one."""
        if self.stores is None:
            self.readings.append(Reading(*reading))
        return self.stores is None

    def value(self, measure: Measure, sweep: Sweep, case: Layers | None, edited: bool = True) -> NDArray[Any]:
        """Return a measure of one condition, or (edited=False) of the unedited model at its axes: float[document].

        case: None for the unedited model.
        """
        if self._noted("value", sweep.name, measure, case):
            return np.ones(2)
        store = self.store(sweep)
        rows = self.rows(store)
        if self.twin and edited and case not in rows:
            raise Absent("the untrained twin ran without edits")
        return np.asarray(self.every(measure, sweep, store, case)[rows[case] if edited else 0])

    def drawn(self, measure: Measure, sweep: Sweep, case: Layers | None) -> NDArray[Any] | None:
        """Return a measure under each control of a condition: float[control, document]; None if it has none."""
        if self._noted("drawn", sweep.name, measure, case):
            return None if sweep.control is None else np.ones((2, 2))
        store = f"{sweep.name}{CONTROLS}"
        rows = [row for row, of in self.drawn_rows(store).items() if of == case]
        return self.every(measure, sweep, store, case)[rows] if rows else None

    def first(self, measure: Measure, sweep: Sweep) -> NDArray[Any]:
        """Return a measure of a sweep's unedited model, in its own unit: float[document]."""
        return self.value(measure, sweep, None)

    def untrained(self, measure: Measure, sweep: Sweep) -> NDArray[Any]:
        """Return `first` of the untrained twin, on the first documents."""
        if self._noted("untrained", sweep.name, measure):
            return np.ones(2)
        return np.asarray(self.every(measure, sweep, f"{sweep.name}{TWIN}", None)[0])

    def data(self, name: str) -> xarray.Dataset:
        """Return the results of a calculation or of a training."""
        if self._noted("data", name):
            raise Deferred(name)
        store = f"{name}{TWIN}" if self.twin else name
        self.seen[store] = None
        return self[store]

    def about(self, sweep: Sweep) -> Mapping[str, Any]:
        """Return the facts in a sweep's store about its prompts (`bos`, `first_tokens`, ...); placeholders while tracing."""
        if self.stores is None:
            return {"bos": "none", "first_tokens": [(0, "")]}
        study: Mapping[str, Any] = self[self.store(sweep)].attrs["study"]
        return study

    def exhausted(self, selection: Selection) -> bool:
        """Return whether the controls of each condition are all that exist of their kind."""
        drawn = [*self.drawn_rows(f"{selection.sweep.name}{CONTROLS}").values()] if self.stores is not None else []
        return 0 < max(map(drawn.count, selection.cases), default=0) < getattr(self.settings, "controls", 0)

    def edited(self, measure: Measure, selection: Selection, edited: bool = True) -> NDArray[Any]:
        """Return a measure under some conditions, or (edited=False) of no edit at their axes: float[document(, condition)].

        It is in logarithms if the measure is compared in them.
        """
        return _compared(measure, [self.value(measure, selection.sweep, case, edited) for case in selection.cases])

    def unedited(self, measure: Measure, selection: Selection) -> NDArray[Any]:
        """Return `edited` of no edit, at the axes of some conditions."""
        return self.edited(measure, selection, edited=False)

    def controls(self, measure: Measure, selection: Selection) -> NDArray[Any] | None:
        """Return a measure under the controls of some conditions: float[control, document(, condition)], or None."""
        drawn = [self.drawn(measure, selection.sweep, case) for case in selection.cases]
        values = [one for one in drawn if one is not None and len(one)]
        if not values or len(values) < len(drawn):
            return None
        return _compared(measure, [one[: min(map(len, values))] for one in values])

    # Intervals and figures.

    @property
    def over(self) -> str:
        """The sampling unit of means and intervals as text; for studies over documents see `over`."""
        return over((self.stores or {}).values()) if self.unit == DOCUMENTS else self.unit

    def clusters(self, count: int, *stores: str, genres: bool = False) -> NDArray[Any] | None:
        """Return the document of each of the first prompts, int[count], if several are from one document; else None.

        Args:
            count: Number of prompts.
            *stores: The stores that the numbers come from, by default the first one; prompts that are not text have no documents.
            genres: Whether several genres, str[count], take precedence over documents.
        """
        about = [self[name].attrs.get("study", {}) for name in stores or [*(self.stores or ())][:1] if name in self]
        for what, fewest in (("genres", 2), ("documents", 1))[not genres :] if self.unit == DOCUMENTS else ():
            clusters = max((study.get(what, ())[:count] for study in about), key=len, default=())
            if fewest <= len(set(clusters)) < count == len(clusters):
                return np.asarray(clusters)
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
        on_edits = "edit" in first.dims
        sampled, origin = source(first, bands and on_edits, others, text=on_edits)
        return Drawing(name, figure, f"{caption}{sampled}", origin)


def from_results(function: Callable[Concatenate[Numbers, Given], Computed]) -> Callable[Given, Callable[[Numbers], Computed]]:
    """Decorate a function of numbers and arguments, such as a contrast: given the arguments, it returns a function of numbers."""

    @functools.wraps(function)
    def made(*given: Given.args, **named: Given.kwargs) -> Callable[[Numbers], Computed]:
        return lambda numbers: function(numbers, *given, **named)

    return made


def _compared(measure: Measure, values: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Stack the values of several conditions along a last axis, in logarithms if the measure is compared in them."""
    stacked = np.stack(values, axis=-1) if len(values) > 1 else np.asarray(values[0])
    return np.log(stacked) if measure.log else stacked


def labels(data: xarray.Dataset) -> list[str]:
    """Return the labels of a store's edits."""
    return [str(label) for label in data["edit"].values]


# Facts about stores, for captions and pages: how they were made, and from which prompts.


def provenance(dataset: xarray.Dataset) -> dict[str, object]:
    """Describe how a store was made, for readers."""
    sweep, study, (machine, *_) = dataset.attrs["sweep"], dataset.attrs.get("study", {}), dataset.attrs["hardware"]
    versions = sweep["versions"] | {name: machine[name] for name in ("jax", "jaxlib")}
    model, prompts = sweep["model"], sweep["prompts"]
    facts = {
        "model": named(model) + (f" at {model['revision']}" if model.get("revision") else ""),
        "weights": f"{model['dtype']}, stored as {model.get('stored') or 'none: drawn'}, sha256 {model['sha256'][:12]}",
        "precision of matrix products": sweep["precision"],
        "attention": sweep.get("attention_impl"),
        "prompts": f"{prompts['count']} of up to {prompts['positions']} tokens",
        "text": study.get("text"),
        "split": _split(study),
        "text sha256": study.get("text_sha256", "")[:12],
        "BOS": study.get("bos"),
        "first tokens of prompt 0": " ".join(f"{text!r} ({token})" for token, text in study.get("first_tokens", ())),
        "edits": dataset.sizes.get("edit"),
        "device": devices_of(dataset.attrs),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
    }
    return {name: value for name, value in facts.items() if value not in (None, "")}


def bos_warning(model: str, study: Mapping[str, Any]) -> str:
    """Say that prompts lack the token that the model was trained with; "" if they do not."""
    token = study.get(TRAINED_WITH)
    return f"{model} was trained with {token} before its texts, and these prompts have none; --bos auto adds it" if token else ""


def devices_of(attributes: Mapping[str, Any]) -> str:
    """Name the devices that computed a dataset with these attributes."""
    return ", then ".join(dict.fromkeys(machine["devices"] for machine in attributes["hardware"]))


def over(stores: Iterable[xarray.Dataset]) -> str:
    """Name the kind of prompts in stores: documents, passages that may share a document, or "prompts" if not text."""
    documents = [data.attrs.get("study", {}).get("documents", ()) for data in stores]
    if not documents or not all(documents):
        return "prompts"
    return DOCUMENTS if all(len(set(each)) == len(each) for each in documents) else "passages, clustered by document"


def _split(study: Mapping[str, Sequence[str]]) -> str:
    """Describe the split and how much of it was used."""
    if not study.get("documents"):
        return ""
    documents, genres = len(set(study["documents"])), len(set(filter(None, study.get("genres", ()))))
    used = f"{documents} document{'s' * (documents != 1)}" + (f" in {genres} genre{'s' * (genres != 1)}" if genres else "")
    return ", ".join(filter(None, (str(study.get("split") or ""), used)))


def source(data: xarray.Dataset, bands: bool = True, others: Sequence[xarray.Dataset] = (), text: bool = True) -> tuple[str, str]:
    """Write the end of a caption (intervals, prompts) and its source: model, precision, BOS (unless the stores differ) and text.

    others: other stores that are drawn. text: whether the numbers depend on a text.
    """
    made, study = data.attrs["sweep"], data.attrs.get("study", {})  # a store made from Python names no study
    counts = dict.fromkeys(str(one.sizes["prompt"]) for one in (data, *others) if "prompt" in one.sizes)
    texts = dict.fromkeys(one.attrs["study"]["text"].partition(", because")[0] for one in (data, *others) if "study" in one.attrs)
    bos = f", BOS {study['bos']}" if study and all(one.attrs["study"]["bos"] == study["bos"] for one in others) else ""
    prompts = f"{' or '.join(counts)} {over((data, *others))}"
    sampled = f" Bands: 95% intervals over {prompts}." if bands and counts else f" {prompts}." * bool(counts)
    origin = f"{bos}, {'; '.join(texts)}" if text and texts else ""
    return sampled, f"{named(made['model'])} in {made['dtype']}{origin}."
