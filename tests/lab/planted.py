"""Stores of a study with planted numbers, so that its contrasts and claims are read without running it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import xarray

from sinkjax.lab.conditions import Point
from sinkjax.lab.lower import Program
from sinkjax.studies.results import Results
from sinkjax.studies.specs import ABSENT, prepared
from sinkjax.studies.study import Sweep
from tests.lab.stores import Numbers, store


def where(point: Point) -> str:
    """The label of the place of a condition; "" for the unedited model."""
    return "" if point.case is None else point.case.place.label


def axes(point: Point) -> dict[str, Any]:
    """The axes of a condition."""
    return {} if point.case is None else dict(point.case.axes)


def planted(
    study: Program,
    numbers: Callable[[str, Point], Numbers],
    *,
    layers: int = 2,
    heads: int = 1,
    absent: Mapping[str, str] | None = None,
    about: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Results:
    """Results of a study.

    Args:
        study: The study.
        numbers: (store, condition) -> what is planted (`tests/lab/stores.py`); attention that is not stays 0, and all else 1.
        layers, heads: Of the model.
        absent: Store -> why it did not run.
        about: What each store says of its prompts: `documents`, `genres`, `first_tokens`.
        **settings: Of the study.
    """
    lowered = study.lowered()
    config, architecture = lowered.config(**settings), SimpleNamespace(layers=layers, heads=heads, kv_heads=heads)
    prompts = {"documents": list(range(config.prompts)), **(about or {})}
    attributes = {"sweep": {"config": vars(architecture)}, "study": prompts}
    stores: dict[str, xarray.Dataset] = {}
    for main in lowered.sweeps(config, architecture):
        assert isinstance(main, Sweep)
        for sweep in (main, *main.controls):
            if reason := (absent or {}).get(sweep.name):
                stores[sweep.name] = xarray.Dataset(attrs={**attributes, ABSENT: reason})
                continue
            count = config.prompts if sweep.prompts is None else sweep.prompts
            points: Any = prepared(sweep, config, architecture, count)[0]
            data = store([numbers(sweep.name, point) for point in points], count, (layers, heads, config.length))
            stores[sweep.name] = data.assign_coords(edit=[point.label for point in points]).assign_attrs(attributes)
    return Results(lowered, config, stores)


def words(study: Program, numbers: Callable[[str, Point], Numbers], **options: Any) -> dict[str, str]:
    """The word of each claim of a study with planted numbers."""
    results = planted(study, numbers, **options)
    assert results.study.verdicts is not None
    return {found.name: found.word for found in results.study.verdicts(results)}
