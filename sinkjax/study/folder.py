"""A run's folder: its stores, the values that decide what the study does, summary, figures and page."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkjax.analysis.summary import summary_csv
from sinkjax.config_files.files import plain_name, read_text, write, write_new
from sinkjax.config_files.places import Place
from sinkjax.errors import SinkjaxError
from sinkjax.report import stored
from sinkjax.report.page import page
from sinkjax.report.section import Report, Section
from sinkjax.study.results import VALUES
from sinkjax.sweeps.store import Store, described

if TYPE_CHECKING:
    import xarray


PAGE, SUMMARY, CLAIMS, FIGURES = "report.html", "summary.csv", "claims.csv", "figures"


class RunValues(dict[str, Any]):
    """Values on which a study's further steps depend: name -> value, as JSON. The first process to write one sets it for all.

    They are written once into the run, and read by every other process, a resumed run and the page.
    """

    def __init__(self, folder: Place):
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


def store_path(folder: Place, name: str) -> Place:
    """Return the path of a spec's store."""
    return folder / f"{plain_name(name)}.zarr"


def open_store(path: Place, finished: bool = True) -> xarray.Dataset:
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


def write_results(section: Section, folder: Place) -> None:
    """Write a section's figures, summary and page into a folder."""
    for drawing in section.drawings:
        name = plain_name(drawing.name)
        write(folder / FIGURES / f"{name}.svg", drawing.svg)
        write(folder / FIGURES / f"{name}.png", drawing.png)
    write(folder / SUMMARY, summary_csv(section.rows, section.subject))
    write(folder / PAGE, page([section], title=section.title))


def rebuild_kept(folder: Place) -> Section | Report | None:
    """Write the page of a run, or of a series, from the sections that it kept; no study runs. None if it kept none.

    Errors: see `stored.kept`.
    """
    if (folder / stored.FILE).is_file():
        section = stored.kept(folder, FIGURES)
        write_results(section, folder)
        return section
    members = sorted(file.parent for file in folder.glob(f"*/{stored.FILE}"))
    if not members:
        return None
    found = [(place.name, stored.kept(place, FIGURES)) for place in members]
    for (_, section), place in zip(found, members, strict=True):
        write_results(section, place)
    named = tuple(dataclasses.replace(section, study=f"{section.study} on {name}") for name, section in found)
    report = Report(f"{found[0][1].study} on {len(named)} models", named, {})
    write(folder / PAGE, page([dataclasses.replace(one, views=(), samples=()) for one in named], report.title, {}))
    return report
