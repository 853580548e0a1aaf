"""Stores of a study that is a value, with planted numbers, so that its contrasts and claims are read without running it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import xarray

from sinkjax.studies.declaration import Study
from sinkjax.studies.grids import Point
from sinkjax.studies.lower import lower
from sinkjax.studies.results import Results
from sinkjax.studies.specs import ABSENT, prepared
from sinkjax.studies.study import Sweep

Numbers = Mapping[tuple[Any, ...], Any]  # what is planted -> float, or float[document]
EPS = 0.3

# ("seen", key) or ("seen", key, layer): attention in per cent, the same in all heads; ("sinks", key): share of the heads, of all
# layers, that receive 90%; ("size", position) or ("size", position, depth): largest |h|; ("loss",).


def planted(
    study: Study,
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
        numbers: (store, condition) -> what is planted; attention that is not stays 0, and all else 1.
        layers, heads: Of the model.
        absent: Store -> why it did not run.
        about: What each store says of its prompts: `documents`, `genres`, `first_tokens`.
        **settings: Of the study.
    """
    declared = lower(study)
    config, architecture = declared.config(**settings), SimpleNamespace(layers=layers, heads=heads, kv_heads=heads)
    prompts = {"documents": list(range(config.prompts)), **(about or {})}
    attributes = {"sweep": {"config": vars(architecture)}, "study": prompts}
    stores: dict[str, xarray.Dataset] = {}
    for main in declared.sweeps(config, architecture):
        assert isinstance(main, Sweep)
        for sweep in (main, *main.controls):
            if reason := (absent or {}).get(sweep.name):
                stores[sweep.name] = xarray.Dataset(attrs={**attributes, ABSENT: reason})
                continue
            count = config.prompts if sweep.prompts is None else sweep.prompts
            points: Any = prepared(sweep, config, architecture, count)[0]
            planted = [numbers(sweep.name, point) for point in points]
            data = store(planted, count, (layers, heads, config.length))
            stores[sweep.name] = data.assign_coords(edit=[point.label for point in points]).assign_attrs(attributes)
    return Results(declared, config, stores)


def store(planted: list[Numbers], count: int, shape: tuple[int, int, int]) -> xarray.Dataset:
    """The statistics of some conditions and documents."""
    L, H, T = shape
    received, sizes = np.zeros((len(planted), count, L, H, T)), np.ones((len(planted), count, L + 1, T))
    loss = np.ones((len(planted), count, T))
    for row, numbers in enumerate(planted):
        for (kind, *where), value in numbers.items():
            found = np.broadcast_to(np.atleast_1d(np.asarray(value, float))[:count], count)
            depth = slice(where[1], where[1] + 1) if len(where) > 1 else slice(None)
            if kind == "seen":
                received[row, :, depth, :, where[0]] = found[:, None, None] / 100
            elif kind == "sinks":
                received[row, :, :, :, where[0]] = np.where(np.arange(H) < np.round(found * H)[:, None], 0.9, 0.01)[:, None]
            elif kind == "size":
                sizes[row, :, depth, where[0]] = found[:, None]
            else:
                loss[row] = found[:, None]
    return xarray.Dataset(
        {
            "attention_received": (("edit", "prompt", "layer", "head", "key"), received),
            "sinking_heads": (("edit", "prompt", "layer", "key"), (received > EPS).mean(axis=3)),
            "mean_attention": (("edit", "prompt", "layer", "key"), received.mean(axis=3)),
            "resid_max": (("edit", "prompt", "depth", "position"), sizes),
            "resid_median": (("edit", "prompt", "depth", "position"), np.ones_like(sizes)),
            "nll": (("edit", "prompt", "position"), loss),
        }
    )
