"""The folder of a run: its config, one store for each sweep, the summary, the figures and the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from sinkjax.checkpoints.presets import named
from sinkjax.config_files.places import Place
from sinkjax.errors import SinkjaxError

if TYPE_CHECKING:
    import xarray

PAGE, SUMMARY, CLAIMS, FIGURES = "report.html", "summary.csv", "claims.csv", "figures"


def store_path(folder: Place, name: str) -> Place:
    """Where the store of a spec lies."""
    return folder / f"{name}.zarr"


def open_store(path: Place, finished: bool = True) -> xarray.Dataset:
    """The store of a sweep or a calculation; of one that is not finished, and need not be, the attributes alone.

    Errors: none there, not a store, or damaged metadata; files missing or changed; a sweep that was interrupted.
    """
    from sinkjax.sweeps.identity import described
    from sinkjax.sweeps.store import Store

    if not path.exists():
        raise SinkjaxError(f"there is no store {path}; run the study first")
    store = Store(path)
    if store.finished and store.faults:
        raise SinkjaxError(
            f"the store {path} is damaged ({described(store.faults)}); rerun the command that began it to recompute that"
        )
    if store.finished:
        return store.dataset()
    if finished:
        share = min(99, int(100 * store.done.mean())) if store.done.size else 0  # all may be computed and not yet put together
        raise SinkjaxError(f"the sweep in {path} is not finished ({share}% done); rerun the command that began it to resume it")
    import xarray

    return xarray.Dataset(attrs=dict(store.header.attributes))


def provenance(dataset: xarray.Dataset) -> dict[str, object]:
    """Facts that a reader needs about how a store was made, as text."""
    from sinkjax.sweeps.identity import devices_in_words, versions_in_words

    sweep, study = dataset.attrs["sweep"], dataset.attrs.get("study", {})
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
        "versions": versions_in_words(dataset.attrs),
    }
    return {name: value for name, value in facts.items() if value not in (None, "")}


def over(stores: Iterable[xarray.Dataset]) -> str:
    """The kind of prompts in some stores: documents, passages that may share a document, or not text ("prompts")."""
    found = [data.attrs.get("study", {}).get("documents", ()) for data in stores]
    if not found or not all(found):
        return "prompts"
    alone = all(len(set(documents)) == len(documents) for documents in found)
    return "documents" if alone else "passages, clustered by document"


def _split(study: Mapping[str, Sequence[str]]) -> str:
    """The split and how much of it was read, in words."""
    if not study.get("documents"):
        return ""
    documents, genres = len(set(study["documents"])), len(set(filter(None, study.get("genres", ()))))
    read = f"{documents} document{'s' * (documents != 1)}" + (f" in {genres} genre{'s' * (genres != 1)}" if genres else "")
    return ", ".join(filter(None, (str(study.get("split") or ""), read)))
