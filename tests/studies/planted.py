"""Results that hold planted numbers, without a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import xarray

import sinkjax
from sinkjax.studies.results import Results
from sinkjax.studies.specs import SWEEP
from sinkjax.studies.study import Condition, Measure, Study, Sweep


def synthetic(
    values: Mapping[str, Any],
    measure: Measure,
    budgets: Mapping[str, Any] | None = None,
    controls: Mapping[str, Any] | None = None,
) -> Results:
    """The results of a sweep of compositions of nothing, whose statistic `size` has the given values for each condition.

    budgets: of conditions and controls by label. controls: their values by label.
    """
    budget = budgets or {}

    def conditions(labels: Mapping[str, Any]) -> Callable[..., list[Condition]]:
        found = [Condition(sinkjax.compose(label=label), "planted", budget=budget.get(label)) for label in labels]
        return lambda config, architecture: found

    def store(values: Mapping[str, Any]) -> xarray.Dataset:
        array = np.array(list(values.values()), float)
        axes = ("edit", "prompt", "place")[: array.ndim]
        return xarray.Dataset({"size": (axes, array)}, {"edit": list(values)}, {"sweep": {"config": {"layers": 1}}})

    random = (Sweep("controls", conditions(controls)),) if controls else ()
    study = Study(
        name="planted",
        config=SimpleNamespace,
        title="",
        question="",
        sweeps=lambda config, architecture: [
            Sweep(SWEEP, conditions(values), (measure,), controls=random),
        ],
    )
    stores = {SWEEP: store(values)} | ({"controls": store(controls)} if controls else {})
    return Results(study, SimpleNamespace(seed=0), stores)
