"""Run a calculation and store its result atomically."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkjax.checkpoints.model import Model
from sinkjax.config_files.places import Place
from sinkjax.errors import SinkjaxError
from sinkjax.runtime.hardware import facts
from sinkjax.study.work import Batch, Calculation
from sinkjax.sweeps.arrays import METADATA, codecs, storable
from sinkjax.sweeps.computation import description, prompts_identity
from sinkjax.sweeps.header import HARDWARE, IDENTITY, Header
from sinkjax.sweeps.schedule import Chunk
from sinkjax.sweeps.store import begin, existing

if TYPE_CHECKING:
    import xarray

WHOLE = Chunk(0, (), 0)  # the one call of a calculation


def calculate(calculation: Calculation, model: Model, batch: Batch, path: Place) -> None:
    """Compute and write the store `path`, unless it exists. Errors: a store of other numbers; no permission or no space."""
    prompts = prompts_identity(batch.tokens, batch.lengths)
    identity = description(model, "highest") | {"calculation": calculation.name, "prompts": prompts}
    if calculation.declared is not None:
        identity["declared"] = calculation.declared
    if holds(path, identity):
        return
    found = calculation.compute(model, batch)
    if set(found.data_vars) != set(calculation.variables):
        given, declared = (", ".join(sorted(map(str, names))) for names in (found.data_vars, calculation.variables))
        raise SinkjaxError(f"the calculation {calculation.name} declares the variables {declared}, but returns {given}")
    write_whole(found, path, identity, dict(batch.study))


def holds(path: Place, identity: Mapping[str, object]) -> bool:
    """Return whether the store `path` exists and is complete. Errors: a store of other numbers."""
    store = existing(path, identity)
    return store is not None and store.finished and not store.faults


def write_whole(dataset: xarray.Dataset, path: Place, identity: Mapping[str, object], study: Mapping[str, object]) -> None:
    """Write a dataset atomically as the store `path`; `identity` and `study` are its provenance, as JSON.

    It first becomes a single object, so several processes write the same store from it. A valid store from a faster process
    stays. Errors: the store has other numbers; no permission or no space.
    """
    attributes = json.loads(json.dumps({IDENTITY: identity, HARDWARE: [facts()], "study": study}))
    files = _files(dataset.assign_attrs(attributes))
    store = begin(path, identity, lambda: _header(files))
    if not store.finished:
        store.write(WHOLE, 0, {name: np.frombuffer(content, np.uint8) for name, content in files.items()})
        with contextlib.suppress(FileNotFoundError, ValueError):  # another process has finished, or the disk has failed
            files = {name: array.tobytes() for name, array in store.read(WHOLE, 0).items()}
        header = _header(files)
        store.publish(header, {name: content for name, content in files.items() if name not in header.files()})


def _files(dataset: xarray.Dataset) -> dict[str, bytes]:
    """Return the files of a dataset as a zarr group."""
    import zarr

    files: dict[str, Any] = {}
    dataset = dataset.map(lambda array: array.astype(storable(array.dtype)), keep_attrs=True).drop_encoding()
    encoding = {name: {"filters": codecs(), "compressors": None} for name in dataset.variables}
    dataset.to_zarr(zarr.storage.MemoryStore(files), mode="w", zarr_format=2, consolidated=True, encoding=encoding)
    return {name: content.to_bytes() for name, content in files.items()}


def _header(files: Mapping[str, bytes]) -> Header:
    return Header(json.loads(files[METADATA])["metadata"])
