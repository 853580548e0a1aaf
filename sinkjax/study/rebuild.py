"""The results of a run, from the stores in its folder; the model is not needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sinkjax.analysis.verdicts import verdicts_csv
from sinkjax.checkpoints.settings import Settings
from sinkjax.config_files import documents
from sinkjax.config_files.files import write
from sinkjax.config_files.places import Place
from sinkjax.errors import SinkjaxError
from sinkjax.report import stored
from sinkjax.report.section import Section
from sinkjax.study import folder as results
from sinkjax.study import trained
from sinkjax.study.assemble import assemble
from sinkjax.study.choice import STORE_SUFFIX, Chosen
from sinkjax.study.parts import parts
from sinkjax.study.registry import LISTED
from sinkjax.study.results import architecture_of
from sinkjax.study.sweep_file import SHOWN
from sinkjax.study.sweep_file import Settings as Listed
from sinkjax.study.trace import Lab
from sinkjax.study.training import stores_of
from sinkjax.study.views import TEXTS
from sinkjax.study.work import Calculation

if TYPE_CHECKING:
    import xarray


def build(chosen: Chosen, folder: Place) -> Section:
    """Rebuild the summary, figures and page of a run from its stores."""
    section = section_of(chosen, folder)
    if section.verdicts:
        write(folder / results.CLAIMS, verdicts_csv(section.study, section.verdicts, getattr(chosen.config, "model", "")))
    results.write_results(section, folder)
    if chosen.own:
        stored.keep(section, folder)
    return section


def section_of(chosen: Chosen, folder: Place) -> Section:
    """The results of a run, from its stores; nothing is written. Errors: a store that must be there and is not."""
    if chosen.program.trains:
        lab = chosen.program.trace(chosen.config, None)
        return assemble(lab, stores_of(trained.specs(lab, chosen.config), folder))
    if chosen.store is not None:
        data = results.open_store(chosen.store)
        return assemble(chosen.program.trace(_config_of(data), architecture_of(data)), {LISTED: data})
    return assemble(*_stores(chosen, folder))


def _check_settings(config: Settings, store: xarray.Dataset, path: Place) -> None:
    """Raise for a store that was made with other settings than `config` states, as after an edit of config.yaml."""
    made = store.attrs.get("study", {}).get("config", {})
    now = documents.plain(documents.fields(config))
    for name in documents.decides(config):
        if name in made and made[name] != now[name]:
            raise SinkjaxError(
                f"{path} was made with {name} {made[name]!r}, and its config.yaml says {now[name]!r}: restore that value, or"
                " run the study into another folder"
            )


def _config_of(data: xarray.Dataset) -> Any:
    """The config of a sweep from Python, as far as a section needs it: its edits by their labels, and its probe."""
    if "edit" not in data.dims:
        raise SinkjaxError("this store holds no edits, so there is nothing to summarise")
    edits = tuple({"compose": [], "label": str(label)} for label in data["edit"].values)
    return Listed(probe=tuple(name for name in SHOWN if name in data), edits=edits, prompts=data.sizes["prompt"])


def _stores(chosen: Chosen, folder: Place) -> tuple[Lab, dict[str, xarray.Dataset]]:
    """The study traced on its stores, and these by name. Errors: one that must be there and is not, or is not finished."""
    there = sorted(folder.glob(f"*{STORE_SUFFIX}"))
    if not there:
        raise SinkjaxError(f"{folder} holds no results yet; run the study first")
    architecture = architecture_of(results.open_store(there[0], finished=False))
    lab = chosen.program.trace(chosen.config, architecture, values=dict(results.RunValues(folder)))
    found = {part.name: part for part in parts(lab)}
    optional = {name: part.optional for name, part in found.items()} | {TEXTS: True}
    paths = {name: results.store_path(folder, name) for name in optional}
    stores = {name: results.open_store(path) for name, path in paths.items() if path.exists() or not optional[name]}
    for name, store in stores.items():
        _check_settings(chosen.config, store, paths[name])
        part = found.get(name)
        if isinstance(part, Calculation) and (lost := sorted(set(part.variables) - set(store.variables))):
            missing = ", ".join(lost)
            raise SinkjaxError(
                f"{paths[name]} has no {missing}: an earlier version of the study made it; delete it and run again"
            )
    return lab, stores
