"""A run's folder: its stores, the values that decide what the study does, summary, figures and page."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkjax.analysis.summary import summary_csv
from sinkjax.checkpoints.model import Model
from sinkjax.config_files.files import plain_name, read_text, write, write_new
from sinkjax.config_files.locations import Location
from sinkjax.errors import SinkjaxError
from sinkjax.report import stored
from sinkjax.report.page import page
from sinkjax.report.section import Report, Section
from sinkjax.runtime.hardware import facts
from sinkjax.study.registry import STORE_SUFFIX
from sinkjax.study.work import Batch, Calculation
from sinkjax.sweeps.arrays import METADATA, codecs, storable
from sinkjax.sweeps.computation import description, prompts_identity
from sinkjax.sweeps.header import HARDWARE, IDENTITY, Header
from sinkjax.sweeps.schedule import Chunk
from sinkjax.sweeps.store import Store, begin, described, existing

if TYPE_CHECKING:
    import xarray

PAGE, SUMMARY, CLAIMS, FIGURES, VALUES = "report.html", "summary.csv", "claims.csv", "figures", "values"
WHOLE = Chunk(0, (), 0)  # the one call of a calculation


class RunValues(dict[str, Any]):
    """Values on which a study's further steps depend: name -> value, as JSON. The first process to write one sets it for all.

    They are written once into the run, and read by every other process, a resumed run and the page.
    """

    def __init__(self, folder: Location):
        self.folder = folder / VALUES
        super().__init__({file.stem: json.loads(read_text(file)) for file in sorted(self.folder.glob("*.json"))})

    def __setitem__(self, name: str, value: object) -> None:
        file = self.folder / f"{name}.json"
        write_new(file, json.dumps(value, default=_plain))
        super().__setitem__(name, json.loads(read_text(file)))


def _plain(value: object) -> object:
    """Turn NumPy's numbers and arrays into JSON's."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"a value must be a number, a text or a list of these, not {type(value).__name__}")


# Stores.


def store_path(folder: Location, name: str) -> Location:
    """Return the path of a spec's store."""
    return folder / f"{plain_name(name)}{STORE_SUFFIX}"


def open_store(path: Location, finished: bool = True) -> xarray.Dataset:
    """Open the store of a sweep or a calculation; if it may be unfinished and is, return only the attributes.

    Errors: there is no store; damaged metadata; files missing or changed; an interrupted sweep.
    """
    if not path.exists():
        raise SinkjaxError(f"there is no store {path}; run the study first")
    store = Store(path)
    if store.finished and store.faults:
        raise SinkjaxError(
            f"the store {path} is damaged ({described(store.faults)}); rerun the command that started it to recompute that"
        )
    if store.finished:
        return store.dataset()
    if finished:
        share = min(99, int(100 * store.done.mean())) if store.done.size else 0  # all calls may be done, but not yet the arrays
        raise SinkjaxError(f"the sweep in {path} is not finished ({share}% done); rerun the command that started it to resume it")
    import xarray

    return xarray.Dataset(attrs=dict(store.header.attributes))


def calculate(calculation: Calculation, model: Model, batch: Batch, path: Location) -> None:
    """Compute and write the store `path`, unless it exists. Errors: a store of other numbers; no permission or no space."""
    prompts = prompts_identity(batch.tokens, batch.lengths)
    identity = description(model, "highest") | {"calculation": calculation.name, "prompts": prompts}
    if calculation.declared is not None:
        identity["declared"] = calculation.declared
    if is_complete(path, identity):
        return
    data = calculation.compute(model, batch)
    if set(data.data_vars) != set(calculation.variables):
        given, declared = (", ".join(sorted(map(str, names))) for names in (data.data_vars, calculation.variables))
        raise SinkjaxError(f"the calculation {calculation.name} declares the variables {declared}, but returns {given}")
    write_whole(data, path, identity, dict(batch.study))


def is_complete(path: Location, identity: Mapping[str, object]) -> bool:
    """Return whether the store `path` exists and is complete. Errors: a store of other numbers."""
    store = existing(path, identity)
    return store is not None and store.finished and not store.faults


def write_whole(dataset: xarray.Dataset, path: Location, identity: Mapping[str, object], study: Mapping[str, object]) -> None:
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


def write_results(section: Section, folder: Location) -> None:
    """Write a section's figures, summary and page into a folder."""
    for drawing in section.drawings:
        name = plain_name(drawing.name)
        write(folder / FIGURES / f"{name}.svg", drawing.svg)
        write(folder / FIGURES / f"{name}.png", drawing.png)
    write(folder / SUMMARY, summary_csv(section.rows, section.subject))
    write(folder / PAGE, page([section], title=section.title))


def rebuild_kept(folder: Location) -> Section | Report | None:
    """Write the page of a run, or of a series, from the sections that it kept; no study runs. None if it kept none.

    Errors: see `stored.kept`.
    """
    alone = (folder / stored.FILE).is_file()
    folders = [folder] if alone else sorted(file.parent for file in folder.glob(f"*/{stored.FILE}"))
    kept = {place: stored.kept(place, FIGURES) for place in folders}
    for place, section in kept.items():
        write_results(section, place)
    if alone or not kept:
        return kept.get(folder)
    named = tuple(dataclasses.replace(section, study=f"{section.study} on {place.name}") for place, section in kept.items())
    report = Report(f"{next(iter(kept.values())).study} on {len(named)} models", named, {})
    write(folder / PAGE, page([dataclasses.replace(one, views=(), samples=()) for one in named], report.title, {}))
    return report
