"""A run's folder (config, stores, summary, figures, page), and facts about its stores."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sinkjax.analysis.summary import summary_csv
from sinkjax.checkpoints.presets import named
from sinkjax.config_files.files import plain_name, write
from sinkjax.config_files.places import Place
from sinkjax.errors import SinkjaxError
from sinkjax.report import stored
from sinkjax.report.section import Report, Section

if TYPE_CHECKING:
    import xarray


PAGE, SUMMARY, CLAIMS, FIGURES = "report.html", "summary.csv", "claims.csv", "figures"
TOKENS, POSITIONS = 14, 24  # positions drawn per prompt, so that ticks are legible and columns visible


def store_path(folder: Place, name: str) -> Place:
    """Return the path of a spec's store."""
    return folder / f"{plain_name(name)}.zarr"


def open_store(path: Place, finished: bool = True) -> xarray.Dataset:
    """Open the store of a sweep or a calculation; if it may be unfinished and is, return only the attributes.

    Errors: there is no store; damaged metadata; files missing or changed; an interrupted sweep.
    """
    from sinkjax.sweeps.store import Store, described

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


def provenance(dataset: xarray.Dataset) -> dict[str, object]:
    """Describe how a store was made, for readers."""
    sweep, study, (machine, *_) = dataset.attrs["sweep"], dataset.attrs.get("study", {}), dataset.attrs["hardware"]
    versions = sweep["versions"] | {name: machine[name] for name in ("jax", "jaxlib")}
    model, prompts = sweep["model"], sweep["prompts"]
    facts = {
        "model": named(model) + (f" at {model['revision']}" if model.get("revision") else ""),
        "weights": f"{model['dtype']}, stored as {model.get('stored') or 'none: drawn'}, sha256 {model['sha256'][:12]}",
        "precision of matrix products": sweep["precision"],
        "attention": sweep.get("attention_impl"),
        "prompts": f"{prompts['count']} of up to {prompts['positions']} tokens",
        "text": study.get("text"),
        "split": _split(study),
        "text sha256": study.get("text_sha256", "")[:12],
        "BOS": study.get("bos"),
        "first tokens of prompt 0": " ".join(f"{text!r} ({token})" for token, text in study.get("first_tokens", ())),
        "edits": dataset.sizes.get("edit"),
        "device": devices_in_words(dataset.attrs),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
    }
    return {name: value for name, value in facts.items() if value not in (None, "")}


def devices_in_words(attributes: Mapping[str, Any]) -> str:
    """Name the devices that computed a dataset with these attributes."""
    return ", then ".join(dict.fromkeys(machine["devices"] for machine in attributes["hardware"]))


def over(stores: Iterable[xarray.Dataset]) -> str:
    """Name the kind of prompts in stores: documents, passages that may share a document, or "prompts" if not text."""
    found = [data.attrs.get("study", {}).get("documents", ()) for data in stores]
    if not found or not all(found):
        return "prompts"
    return "documents" if all(len(set(each)) == len(each) for each in found) else "passages, clustered by document"


def _split(study: Mapping[str, Sequence[str]]) -> str:
    """Describe the split and how much of it was read."""
    if not study.get("documents"):
        return ""
    documents, genres = len(set(study["documents"])), len(set(filter(None, study.get("genres", ()))))
    read = f"{documents} document{'s' * (documents != 1)}" + (f" in {genres} genre{'s' * (genres != 1)}" if genres else "")
    return ", ".join(filter(None, (str(study.get("split") or ""), read)))


def write_results(section: Section, folder: Place) -> None:
    """Write a section's figures, summary and page into a folder."""
    from sinkjax.report.page import page

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
    from sinkjax.report.page import page

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


def source(data: xarray.Dataset, bands: bool = True, others: Sequence[xarray.Dataset] = (), text: bool = True) -> tuple[str, str]:
    """Write the end of a caption (intervals, prompts) and its source: model, precision, BOS (unless the stores differ) and text.

    others: other stores that are drawn. text: whether the numbers depend on a text.
    """
    made, study = data.attrs["sweep"], data.attrs.get("study", {})  # a store made from Python names no study
    counts = dict.fromkeys(str(one.sizes["prompt"]) for one in (data, *others) if "prompt" in one.sizes)
    texts = dict.fromkeys(one.attrs["study"]["text"].partition(", because")[0] for one in (data, *others) if "study" in one.attrs)
    bos = f", BOS {study['bos']}" if study and all(one.attrs["study"]["bos"] == study["bos"] for one in others) else ""
    prompts = f"{' or '.join(counts)} {over((data, *others))}"
    said = f" Bands: 95% intervals over {prompts}." if bands and counts else f" {prompts}." * bool(counts)
    read = f"{bos}, {'; '.join(texts)}" if text and texts else ""
    return said, f"{named(made['model'])} in {made['dtype']}{read}."
