"""The results of a study: its stores, by name, as numbers for each condition and prompt, and the summary made from them."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkjax.analysis import intervals
from sinkjax.analysis.estimates import Absent
from sinkjax.analysis.finite import lost, only_finite, quietly
from sinkjax.analysis.intervals import Interval
from sinkjax.analysis.summary import Column, Row, Table, column_rows, ranks_among
from sinkjax.errors import SinkjaxError
from sinkjax.report.figures.layers import Line
from sinkjax.studies import folder
from sinkjax.studies.specs import ABSENT, SWEEP, architecture_of, prepared
from sinkjax.studies.study import CONTROL, DOCUMENTS, Condition, Measure, Study, Sweep

if TYPE_CHECKING:
    import xarray

    from sinkjax.studies.config import Settings


class Results:
    """The results of a study, without the model.

    study, config: the study that ran. stores: name -> dataset, if it exists. absent: name -> why a sweep did not run; reading
    its numbers raises `Absent`. architecture: the model's plain fields (`layers`, `heads`, `width`, ...). sweeps: name ->
    each sweep whose store is there; mains: all sweeps but controls. table: the summary, (condition, name of the measure) ->
    row.
    """

    def __init__(self, study: Study, config: Settings, stores: Mapping[str, xarray.Dataset]):
        self.absent = {name: str(store.attrs[ABSENT]) for name, store in stores.items() if ABSENT in store.attrs}
        self.study, self.config = study, config
        self.stores = stores = {name: store for name, store in stores.items() if name not in self.absent}
        trains = study.trainings is not None
        self.architecture = architecture_of(None if trains else next(iter(stores.values())))
        parts = () if trains else tuple(study.sweeps(config, self.architecture))
        sweeps = [part for part in parts if isinstance(part, Sweep)]
        self.sweeps = {sweep.name: sweep for main in sweeps for sweep in (main, *main.controls) if sweep.name in stores}
        self.mains = [sweep for sweep in sweeps if sweep.name in stores and not sweep.twin]

    @property
    def trained(self) -> dict[str, xarray.Dataset]:
        """Measurements on the models of each existing training, by its name."""
        return {name: self[name] for name in self.stores}

    def __contains__(self, name: str) -> bool:
        return name in self.stores

    def __getitem__(self, name: str) -> xarray.Dataset:
        """A store by name, read into memory. Raises `Absent` for a sweep or training that did not run."""
        return self._there(name).load()  # in place, so a store is read once

    def _there(self, name: str) -> xarray.Dataset:
        if name not in self.stores:
            raise Absent(self.absent.get(name, f"{name} has not run"))
        return self.stores[name]

    @functools.cache  # noqa: B019 - lives as long as a report is built
    def conditions(self, store: str = SWEEP) -> tuple[Condition, ...]:
        """The conditions of a sweep, in the order of its store; their edits may hold placeholders.

        Raises:
            Absent: the sweep did not run.
            SinkjaxError: the store holds other labels than the config says.
        """
        prompts = int(self._there(store).sizes.get("prompt", 1))  # a study's number of controls may depend on it
        found, _ = prepared(self.sweeps[store], self.config, self.architecture, prompts)
        stored = [label.partition(": ")[0] if label.startswith(f"{CONTROL} ") else label for label in self.labels(store)]
        wanted = [entry.label.partition(": ")[0] if entry.series == CONTROL else entry.label for entry in found]
        if stored != wanted:
            odd = next((pair for pair in zip(stored, wanted, strict=False) if pair[0] != pair[1]), (len(stored), len(wanted)))
            raise SinkjaxError(f"the store and its config disagree about the edits: {odd[0]!r} and {odd[1]!r}")
        return found

    @functools.cache  # noqa: B019
    def values(self, measure: Measure, store: str = SWEEP) -> NDArray:
        """A measure of every condition: float[condition, prompt], NaN in prompts that overflowed."""
        try:
            with quietly():
                return only_finite(measure.of(self[store]), self[store], measure.name)
        except KeyError as error:
            if isinstance(error, SinkjaxError):
                raise
            held = ", ".join(map(str, self[store].data_vars))
            raise SinkjaxError(
                f"the measure {measure.name!r} needs {error}, which the study's probe did not measure; the store {store!r} holds"
                f" {held}"
            ) from error

    def baseline(self, measure: Measure, store: str = SWEEP) -> NDArray:
        """The baseline of the conditions: float[prompt], or float[condition, prompt] if it differs between them."""
        if measure.baseline is None:
            return self.values(measure, store)[0]
        return only_finite(measure.baseline(self[store]), self[store])

    def labels(self, store: str = SWEEP) -> list[str]:
        return [str(label) for label in self._there(store)["edit"].values]

    def interval(self, values: ArrayLike) -> Interval:
        """The mean of float[prompt] and its interval, by the study's seed and the documents of the first sweep."""
        values = np.asarray(values)
        return intervals.interval(values, seed=self.config.seed, clusters=self.clusters(len(values)))

    def clusters(self, count: int, *stores: str, genres: bool = False) -> NDArray | None:
        """The document of each of the first prompts, int[count], where several are from one; else None.

        stores: where the numbers come from, by default the first sweep; prompts that are not text have no documents. genres:
        whether several genres, str[count], take precedence over documents.
        """
        first = next((sweep.name for sweep in self.mains), next(iter(self.stores)))
        about = [self.stores[name].attrs.get("study", {}) for name in stores or (first,) if name in self.stores]
        for what, fewest in (("genres", 2), ("documents", 1))[not genres :] if self.study.over == DOCUMENTS else ():
            found = max((one.get(what, ())[:count] for one in about), key=len, default=())
            if fewest <= len(set(found)) < count == len(found):
                return np.asarray(found)
        return None

    @property
    def over(self) -> str:
        """The sampling unit of means and intervals as text; for studies over documents see `folder.over`."""
        return folder.over(self.stores.values()) if self.study.over == DOCUMENTS else self.study.over

    @functools.cached_property
    def table(self) -> Table:
        """The summary of all sweeps, (condition, name of the measure) -> row; of a shared label, the first sweep's row."""
        table: Table = {}
        for sweep in self.mains:
            columns = [self._column(sweep, measure) for measure in sweep.measures]
            for row in itertools.chain.from_iterable(zip(*columns, strict=True)):
                table.setdefault((row.condition, row.measure), row)
        return table

    def curve(self, name: str, x: Sequence[float], values: NDArray) -> Line:
        """A line named `name` of float[prompt, x] (NaN where undefined) over x, with intervals over prompts."""
        return Line(name, x, [*intervals.intervals(values, axis=0, seed=self.config.seed, clusters=self.clusters(len(values)))])

    def _column(self, sweep: Sweep, measure: Measure) -> list[Row]:
        conditions = self.conditions(sweep.name)
        values = self.values(measure, sweep.name)
        baseline = self.baseline(measure, sweep.name)
        column = Column(values, baseline)
        controls = [control.name for control in sweep.controls if control.name in self.stores]
        ranks = None
        if controls:
            random = np.concatenate([self._random_effects(measure, control, baseline) for control in controls])
            budgets = [condition.budget for control in controls for condition in self.conditions(control)]
            ranks = ranks_among(column.effects, [condition.budget for condition in conditions], random, budgets)
        labels = [(sweep.row_label(condition), sweep.series or condition.series) for condition in conditions]
        rows = column_rows(labels, measure.name, column, self.config.seed, ranks, self.clusters(values.shape[1], sweep.name))
        out = lost(self[sweep.name])
        return [dataclasses.replace(row, overflowed=out.get(one.label, 0)) for row, one in zip(rows, conditions, strict=True)]

    def _random_effects(self, measure: Measure, controls: str, baseline: NDArray) -> NDArray:
        """Effects of the controls in a store on their prompts, the first of the sweep's: float[control, prompt]."""
        values = self.values(measure, controls)
        own = measure.baseline is not None
        return Column(values, self.baseline(measure, controls) if own else baseline[: values.shape[1]]).effects
