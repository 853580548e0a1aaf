"""Carry out a calculation and store what it gives, whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sinkjax.checkpoints.model import Model
from sinkjax.config_files.places import Place
from sinkjax.errors import SinkjaxError
from sinkjax.progress import say
from sinkjax.studies.study import Batch, Calculation
from sinkjax.sweeps.chunks import codecs, seal, storable
from sinkjax.sweeps.claims import making
from sinkjax.sweeps.computation import description, digest
from sinkjax.sweeps.hardware import facts
from sinkjax.sweeps.identity import HARDWARE, IDENTITY, check_metadata, described, refuse_other
from sinkjax.sweeps.store import exists

if TYPE_CHECKING:
    import xarray


def calculate(calculation: Calculation, model: Model, batch: Batch, path: Place) -> None:
    """Compute and write the store `path`, unless it is there. Errors: the store of other numbers; no permission, no room."""
    identity = description(model, "highest") | {
        "calculation": calculation.name,
        "prompts": {
            "count": len(batch.lengths),
            "positions": batch.tokens.shape[1],
            "sha256": digest(batch.tokens, batch.lengths),
        },
    }
    if holds(path, identity):
        return
    found = calculation.compute(model, batch)
    if set(found.data_vars) != set(calculation.variables):
        given, declared = (", ".join(sorted(map(str, names))) for names in (found.data_vars, calculation.variables))
        raise SinkjaxError(f"the calculation {calculation.name} declares the variables {declared}, but gives {given}")
    write_whole(found, path, identity, dict(batch.study))


def holds(path: Place, identity: Mapping[str, object]) -> bool:
    """Whether the store `path` is there and whole; one with files missing or changed is to be written again, which is said.

    Errors: the store of other numbers; damaged metadata.
    """
    if not exists(path):
        return False
    refuse_other(path, identity)
    if damage := described(check_metadata(path)):
        say(f"{path}: {damage}; computing it again")
    return not damage


def write_whole(dataset: xarray.Dataset, path: Place, identity: Mapping[str, object], study: Mapping[str, object]) -> None:
    """Write a dataset as the store `path`, whole or not at all; `identity` and `study`, JSON, say how it was made.

    A sound store that another process was faster to write stays. Errors: it holds other numbers; no permission or no room.
    """
    dataset = dataset.assign_attrs(json.loads(json.dumps({IDENTITY: identity, HARDWARE: [facts()], "study": study})))
    dataset = dataset.map(lambda array: array.astype(storable(array.dtype)), keep_attrs=True)
    encoding = {name: codecs() for name in dataset.variables}
    with making(path, replace=True) as scratch:
        if scratch is None:
            refuse_other(path, identity)
        else:
            dataset.drop_encoding().to_zarr(scratch, mode="w", zarr_format=2, consolidated=True, encoding=encoding)
            seal(scratch)
