"""Stores of a study with planted numbers, so that its contrasts and claims are read without running it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import xarray

from sinkjax.study.lab import Lab, Study
from sinkjax.study.numbers import Numbers
from sinkjax.study.parts import ABSENT, Part, parts
from sinkjax.study.results import on_stores, verdicts
from sinkjax.study.work import Condition
from tests.study.stores import Values, store


def where(point: Condition) -> str:
    """The label of the place of a condition; "" for the unedited model."""
    return "" if point.case is None else point.case.label


def axes(point: Condition) -> dict[str, Any]:
    """The axes of a condition."""
    return {} if point.case is None else dict(point.case.axes)


def planted(
    study: Study,
    numbers: Callable[[str, Condition], Values],
    *,
    layers: int = 2,
    heads: int = 1,
    absent: Mapping[str, str] | None = None,
    about: Mapping[str, Any] | None = None,
    **settings: Any,
) -> tuple[Lab, Numbers]:
    """A study traced on its results, and these. Documents need a spread: equal ones have no interval.

    Args:
        study: The study.
        numbers: (store, condition) -> what is planted (`tests/study/stores.py`); attention that is not stays 0, and all else 1.
        layers, heads: Of the model.
        absent: Store -> why it did not run.
        about: What each store says of its prompts: `documents`, `genres`, `first_tokens`.
        **settings: Of the study.
    """
    config, architecture = study.settings(**settings), SimpleNamespace(layers=layers, heads=heads, kv_heads=heads, width=8)
    prompts = {"documents": list(range(config.prompts)), **(about or {})}
    attributes = {"sweep": {"config": vars(architecture)}, "study": prompts}
    stores: dict[str, xarray.Dataset] = {}
    lab = study.trace(config, architecture)  # type: ignore[arg-type]
    for part in parts(lab):
        assert isinstance(part, Part)
        if part.role in ("maps", "noop"):
            continue
        if reason := (absent or {}).get(part.name):
            stores[part.name] = xarray.Dataset(attrs={**attributes, ABSENT: reason})
            continue
        points = part.of(lab)
        data = store([numbers(part.name, point) for point in points], part.prompts, (layers, heads, config.length))
        stores[part.name] = data.assign_coords(edit=[point.label for point in points]).assign_attrs(attributes)
    return lab, on_stores(lab, stores)


def words(study: Study, numbers: Callable[[str, Condition], Values], **options: Any) -> dict[str, str]:
    """The word of each claim of a study with planted numbers."""
    return {found.name: found.word for found in verdicts(*planted(study, numbers, **options))}
