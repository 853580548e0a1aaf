"""The results of a study: its stores, by name, as numbers for each condition and prompt, and the summary made from them."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkjax.analysis import intervals
from sinkjax.analysis.intervals import Interval
from sinkjax.analysis.summary import Column, Row, Table, column_rows, ranks_among
from sinkjax.errors import SinkjaxError
from sinkjax.report.figures.layers import Line
from sinkjax.studies.specs import SWEEP, architecture_of, declared, stand_ins
from sinkjax.studies.study import Condition, Measure, Study, Sweep

if TYPE_CHECKING:
    import xarray


class Results:
    """What a study found, without the model.

    study, config: what was run. stores: name -> dataset, those that are there. architecture: of the model, its plain fields
    (`layers`, `heads`, `width`, ...). sweeps: name -> each sweep whose store is there; mains: those that are no controls. table:
    the summary, (condition, name of the measure) -> row.
    """

    def __init__(self, study: Study, config: Any, stores: Mapping[str, xarray.Dataset]):
        self.study, self.config, self.stores = study, config, stores
        self._loaded: dict[str, xarray.Dataset] = {}
        self._values: dict[tuple[str, str], NDArray] = {}
        trains = study.trainings is not None
        self.architecture: Any = SimpleNamespace() if trains else architecture_of(next(iter(stores.values())))
        parts = () if trains else tuple(declared(study, config, self.architecture))
        sweeps = [part for part in parts if isinstance(part, Sweep) and part.when(config, self.architecture)]
        self.sweeps = {sweep.name: sweep for main in sweeps for sweep in (main, *main.controls) if sweep.name in stores}
        self.mains = [sweep for sweep in sweeps if sweep.name in stores]

    @property
    def trained(self) -> dict[str, xarray.Dataset]:
        """What was measured on the models of each training that is there, by its name."""
        return {name: self[name] for name in self.stores}

    def __contains__(self, name: str) -> bool:
        return name in self.stores

    def __getitem__(self, name: str) -> xarray.Dataset:
        """A store by name, read into memory once."""
        if name not in self._loaded:
            self._loaded[name] = self.stores[name].load()
        return self._loaded[name]

    @property
    def data(self) -> xarray.Dataset:
        """The store of the main sweep."""
        return self[SWEEP]

    def size(self, axis: str, store: str = SWEEP) -> int:
        """How many prompts, layers, ... a store has."""
        return int(self[store].sizes[axis])

    @functools.cache  # noqa: B019 - lives as long as a report is built
    def conditions(self, store: str = SWEEP) -> tuple[Condition, ...]:
        """The conditions of a sweep, in the order of its store; their edits may hold stand-ins.

        Raises:
            SinkjaxError: the store holds other labels than the config says.
        """
        found = stand_ins(self.sweeps[store], self.config, self.architecture)
        stored, wanted = [str(label) for label in self.stores[store]["edit"].values], [entry.label for entry in found]
        if stored != wanted:
            odd = next((pair for pair in zip(stored, wanted, strict=False) if pair[0] != pair[1]), (len(stored), len(wanted)))
            raise SinkjaxError(f"the store and its config disagree about the edits: {odd[0]!r} and {odd[1]!r}")
        return found

    def series(self, *names: str, store: str = SWEEP) -> list[Condition]:
        """The conditions of some series, in the order of the store."""
        return [condition for condition in self.conditions(store) if condition.series in names]

    def values(self, measure: Measure, store: str = SWEEP) -> NDArray:
        """A measure of every condition: float[condition, prompt]. Measures of one name are one measure."""
        if (measure.name, store) not in self._values:
            self._values[measure.name, store] = measure.of(self[store])
        return self._values[measure.name, store]

    def per_prompt(self, measure: Measure, label: str, store: str = SWEEP) -> NDArray:
        """A measure of one condition: float[prompt]."""
        return self.values(measure, store)[self.labels(store).index(label)]

    def labels(self, store: str = SWEEP) -> list[str]:
        """The labels of the conditions."""
        return [str(label) for label in self.stores[store]["edit"].values]

    def interval(self, values: ArrayLike) -> Interval:
        """The mean of float[prompt] and its interval, by the study's seed."""
        return intervals.interval(values, seed=self.config.seed)

    @functools.cached_property
    def table(self) -> Table:
        """The summary of all sweeps, (condition, name of the measure) -> row; of a shared label, the first sweep's row."""
        table: Table = {}
        for sweep in self.mains:
            for key, row in self.table_of(sweep.name).items():
                table.setdefault(key, row)
        return table

    @functools.cache  # noqa: B019
    def table_of(self, store: str) -> Table:
        """The summary of one sweep, conditions in their order."""
        sweep = self.sweeps[store]
        measures = sweep.measures(self.config)
        columns = [self._column(sweep, measure) for measure in measures]
        return {(row.condition, row.measure): row for rows in zip(*columns, strict=True) for row in rows}

    @functools.cached_property
    def calculated(self) -> tuple[Row, ...]:
        """The rows of the summary that the study makes itself."""
        return tuple(self.study.rows(self)) if self.study.rows else ()

    def row(self, measure: Measure, label: str) -> Row:
        """The row of the summary for one measure of one condition."""
        return self.table[label, measure.name]

    def line(
        self,
        name: str,
        measure: Measure,
        labels: Sequence[str],
        effect: bool = False,
        baseline: str = "",
        x: Sequence[float] | None = None,
    ) -> Line:
        """A measure along some conditions, for a figure: its values or effects over their x.

        baseline: label of the condition whose value is drawn as a dashed line, "" for none. x: instead of that of the conditions.
        """
        if x is None:
            places = {condition.label: condition.x for sweep in self.sweeps for condition in self.conditions(sweep)}
            x = [places[label] for label in labels]
        rows = [self.row(measure, label) for label in labels]
        reference = self.row(measure, baseline).value.mean if baseline else None
        return Line(name, x, [row.effect if effect else row.value for row in rows], reference)

    def curve(self, name: str, x: Sequence[float], values: NDArray) -> Line:
        """float[prompt, x] as a line with its intervals over prompts."""
        return Line(name, x, intervals.intervals(values, axis=0, seed=self.config.seed).tolist())

    def _column(self, sweep: Sweep, measure: Measure) -> list[Row]:
        conditions = self.conditions(sweep.name)
        values = self.values(measure, sweep.name)
        baseline = values[0] if measure.baseline is None else measure.baseline(self[sweep.name])
        column = Column(values, baseline)
        controls = [control for control in sweep.controls if control.name in self.stores]
        ranks = None
        if controls:
            random = np.concatenate([self._random_effects(measure, control, baseline) for control in controls])
            budgets = [condition.budget for control in controls for condition in self.conditions(control.name)]
            ranks = ranks_among(column.effects, [condition.budget for condition in conditions], random, budgets)
        labels = [(condition.label, condition.series) for condition in conditions]
        return column_rows(labels, measure.name, column, self.config.seed, ranks)

    def _random_effects(self, measure: Measure, control: Sweep, baseline: NDArray) -> NDArray:
        """Effects of controls on their prompts, the first of the sweep's: float[control, prompt]."""
        values = self.values(measure, control.name)
        own = measure.baseline is not None
        return Column(values, measure.baseline(self[control.name]) if own else baseline[: values.shape[1]]).effects  # type: ignore[misc]
