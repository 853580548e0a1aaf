"""Results that hold planted numbers, without a run."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import xarray

import sinkjax
from sinkjax.analysis.summary import Table
from sinkjax.study.layers import Layers
from sinkjax.study.measures import Measure
from sinkjax.study.numbers import Numbers
from sinkjax.study.results import summary
from sinkjax.study.work import Condition, Sweep

SWEEP = "sweep"


def planted_sweep(labels: list[str], *measures: Measure, x: Mapping[str, Any] | None = None) -> Sweep:
    """A sweep of compositions of nothing. x: label -> value on an axis "x"."""
    baseline, *others = (sinkjax.compose(label=label) for label in labels)
    edits = {case_of(edit.label, x): edit for edit in others}
    return Sweep(SWEEP, edits, measures, lambda rng, case: baseline, baseline=baseline)


def case_of(label: str, x: Mapping[str, Any] | None = None) -> Layers:
    """The case of a label."""
    return Layers(label).at(x=x[label]) if x else Layers(label).at()


def store(values: Mapping[str, Any]) -> xarray.Dataset:
    """A store whose statistic `size` has the given values for each condition, by label."""
    array = np.array(list(values.values()), float)
    axes = ("edit", "prompt", "place")[: array.ndim]
    return xarray.Dataset({"size": (axes, array)}, {"edit": list(values)}, {"sweep": {"config": {"layers": 1}}})


def synthetic(
    values: Mapping[str, Any],
    measure: Measure,
    controls: Mapping[str, Mapping[str, Any]] | None = None,
    x: Mapping[str, Any] | None = None,
) -> tuple[SimpleNamespace, Numbers]:
    """The results of a sweep.

    Args:
        values: Label of each condition -> its values.
        measure: The measure.
        controls: Condition -> label of each of its controls -> its values; "": the baseline on the prompts of the controls.
        x: Condition -> its value on an axis.
    """
    sweep = planted_sweep([*values], measure, x=x)
    points, drawn = {SWEEP: sweep.conditions()}, dict[str, Any]()
    random = points[f"{SWEEP}-controls"] = []
    for condition, of_condition in (controls or {}).items():
        for number, (label, found) in enumerate(of_condition.items()):
            case = case_of(condition, x) if condition else None
            edit = sinkjax.compose(label=label)
            random.append(Condition(edit, case, number if condition else -1))
            drawn[label] = found
    stores = {SWEEP: store(values).assign_coords(edit=[point.label for point in points[SWEEP]])} | (
        {f"{SWEEP}-controls": store(drawn)} if drawn else {}
    )
    read = Numbers(SimpleNamespace(seed=0), None, stores, points.__getitem__)
    return SimpleNamespace(sweeps={SWEEP: sweep}), read


def table(values: Mapping[str, Any], measure: Measure, *facts: Any) -> Table:
    """The summary of `synthetic` results."""
    lab: Any
    lab, read = synthetic(values, measure, *facts)
    return summary(lab, read)
