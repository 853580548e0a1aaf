"""A study traced on its stores: its numbers, and the summary made from them."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from sinkjax.analysis.estimates import Absent
from sinkjax.analysis.finite import lost
from sinkjax.analysis.summary import Column, Row, Table, column_rows, ranks_among
from sinkjax.lab.baseline import Unedited
from sinkjax.lab.conditions import Sweep
from sinkjax.lab.measures import Measure
from sinkjax.lab.numbers import CONTROLS, DOCUMENTS, Stored
from sinkjax.lab.parts import ABSENT, Part, parts
from sinkjax.lab.trace import Lab
from sinkjax.model.config import Config

if TYPE_CHECKING:
    import xarray

VALUES = "values"  # attribute of a store: the values that decided its edits


def architecture_of(data: xarray.Dataset) -> Config:
    """Return the plain fields of the architecture that a store was made with: `layers`, `heads`, `width`, ..."""
    return cast("Config", SimpleNamespace(**data.attrs["sweep"]["config"]))


def traced(lab: Lab, stores: Mapping[str, xarray.Dataset]) -> tuple[Lab, Stored]:
    """Trace a study on its stores.

    Args:
        lab: The study, traced on their architecture.
        stores: Name -> store, if it exists.

    Returns:
        The study with the values that decided its edits, and its numbers.
    """
    absent = {name: str(store.attrs[ABSENT]) for name, store in stores.items() if ABSENT in store.attrs}
    stores = {name: store for name, store in stores.items() if name not in absent}
    if lab.missing:
        values: Mapping[str, Any] = next((store.attrs[VALUES] for store in stores.values() if VALUES in store.attrs), {})
        unedited = stores.get(next(iter(lab.sweeps), ""))  # stores of 0.3.0 keep no values; it has what measures read
        few = getattr(lab.settings, "control_prompts", None)
        with contextlib.suppress(Absent):
            lab = lab.again(
                values={**values, **lab.values}, unedited=None if unedited is None else Unedited(None, None, unedited, few)
            )
    found = {part.name: part for part in parts(lab) if isinstance(part, Part)}
    unit = "seeds" if lab.program.trains else DOCUMENTS
    return lab, Stored(lab.settings, lab.architecture, stores, lambda store: found[store].of(lab), unit, absent)


def summary(lab: Lab, read: Stored) -> Table:
    """Return the summary of all sweeps, (condition, name of the measure) -> row; of a shared label, the first sweep's row."""
    table: Table = {}
    for sweep in lab.sweeps.values():
        columns = [_column(read, sweep, measure) for measure in sweep.measures] if sweep.name in read else []
        for row in itertools.chain.from_iterable(zip(*columns, strict=True)):
            table.setdefault((row.condition, row.measure), row)
    return table


def _column(read: Stored, sweep: Sweep, measure: Measure) -> list[Row]:
    """Return a row for each condition. The effect of a measure made for an axis is relative to no edit at the same value."""
    points, store, own = read.points(sweep.name), f"{sweep.name}{CONTROLS}", measure.make is not None
    cases = [point.case for point in points]
    values = np.stack([read.value(measure, sweep, case) for case in cases])
    baseline = np.stack([read.value(measure, sweep, case, edited=False) for case in cases]) if own else values[0]
    column, ranks = Column(values, baseline), None
    drawn = {row: point.case for row, point in enumerate(read.points(store)) if point.draw >= 0} if store in read else {}
    if drawn:
        every = [read.every(measure, sweep, store, case) for case in drawn.values()]
        random = np.stack([one[row] for row, one in zip(drawn, every, strict=True)])
        of_random = np.stack([one[0] for one in every]) if own else baseline[: random.shape[1]]
        ranks = ranks_among(column.effects, cases, Column(random, of_random).effects, [*drawn.values()])
    labels = [(sweep.row_label(point), sweep.title or point.series) for point in points]
    clusters = read.clusters(values.shape[1], sweep.name)
    rows = column_rows(labels, measure.name, column, read.settings.seed, ranks, clusters)
    out = lost(read[sweep.name])
    return [dataclasses.replace(row, overflowed=out.get(one.label, 0)) for row, one in zip(rows, points, strict=True)]
