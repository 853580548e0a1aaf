"""A run's folder (config, stores, summary, figures, page), facts about its stores, and unpacking a zipped folder."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sinkjax.analysis.summary import summary_csv
from sinkjax.checkpoints.presets import named
from sinkjax.config_files.files import CONFIG_FILE, cannot_write, write
from sinkjax.config_files.places import Place
from sinkjax.errors import SinkjaxError
from sinkjax.report.section import Section

if TYPE_CHECKING:
    import xarray


PAGE, SUMMARY, CLAIMS, FIGURES = "report.html", "summary.csv", "claims.csv", "figures"
SUFFIX, LARGEST = ".zip", 50_000_000_000  # suffix of a packed folder, and its maximum unpacked bytes
TOKENS, POSITIONS = 14, 24  # positions drawn per prompt, so that ticks are legible and columns visible


def store_path(folder: Place, name: str) -> Place:
    """Return the path of a spec's store."""
    return folder / f"{name}.zarr"


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


def unpack(archive: Path) -> Path:
    """Unpack the results of a run into a folder next to the archive, with its name without the suffix.

    Args:
        archive: A zip of one folder that contains config.yaml, or of its content.

    Returns:
        The folder of the results.

    Raises:
        SinkjaxError: The archive is not a zip, is damaged, or contains no results; it would unpack to more than LARGEST bytes;
            the target folder already exists; no permission or space.
    """
    folder = archive.with_suffix("")
    if folder.exists():
        raise SinkjaxError(f"{folder} already exists; use it (sinkjax report {folder}), or move it out of the way of {archive}")
    try:
        with zipfile.ZipFile(archive) as packed:
            entries = packed.infolist()
            found = sorted((entry.filename for entry in entries if Path(entry.filename).name == CONFIG_FILE), key=len)
            if not found:
                raise SinkjaxError(f"{archive} contains no results: it has no {CONFIG_FILE}")
            if (size := sum(entry.file_size for entry in entries)) > LARGEST:
                raise SinkjaxError(f"{archive} would unpack to {size:,} bytes, but the limit is {LARGEST:,}")
            packed.extractall(folder)  # extractall keeps every name inside the folder
        inner = folder / Path(found[0]).parent
        if inner != folder and inner.parent == folder and len(list(folder.iterdir())) == 1:  # a zip of the folder itself
            inner.rename(aside := folder.with_name(f"{folder.name}.unpacked"))
            folder.rmdir()
            inner = aside.rename(folder)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise SinkjaxError(f"{archive} is not a complete zip file: {error}") from None
    except OSError as error:
        raise cannot_write(folder, error) from error
    return inner


def write_results(section: Section, folder: Place) -> None:
    """Write a section's figures, summary and page into a folder."""
    from sinkjax.report.page import page

    for drawing in section.drawings:
        write(folder / FIGURES / f"{drawing.name}.svg", drawing.svg)
        write(folder / FIGURES / f"{drawing.name}.png", drawing.png)
    write(folder / SUMMARY, summary_csv(section.rows, section.subject))
    write(folder / PAGE, page([section], title=section.title))


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
