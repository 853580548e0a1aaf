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
    """The store of a sweep or a calculation.

    Errors: none there, not a store, or damaged metadata; files missing or changed; if it must be
    finished, one whose sweep was interrupted.
    """
    from sinkjax.sweeps.identity import HARDWARE, IDENTITY, check_metadata, described, hardware
    from sinkjax.sweeps.store import DONE, Store, opened

    if not path.exists():
        raise SinkjaxError(f"there is no store {path}; run the study first")
    if lost := described(check_metadata(path)):
        raise _damaged(path, lost)
    try:
        dataset = opened(path)
        whole = "calculation" in dataset.attrs[IDENTITY]  # written whole or not at all
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise SinkjaxError(f"{path} is not the store of a sweep ({' '.join(str(error).split())[:120]})") from None
    if finished and not whole:
        store = Store(path)
        if damage := store.damage():
            raise _damaged(path, damage)
        if not store.packed.all():
            share = min(99, int(100 * store.done.mean()))  # all may be computed and not yet packed
            raise SinkjaxError(
                f"the sweep in {path} is not finished ({share}% done); rerun the command that began it to resume it"
            )
    return dataset.drop_vars(DONE, errors="ignore").assign_attrs({HARDWARE: hardware(path, dataset.attrs)})


def provenance(dataset: xarray.Dataset) -> dict[str, object]:
    """What a reader has to know of how a store was made, in words."""
    from sinkjax.sweeps.identity import devices_in_words

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
        "versions": ", ".join(f"{name} {version}" for name, version in sweep["versions"].items()),
    }
    return {name: value for name, value in facts.items() if value not in (None, "")}


def over(stores: Iterable[xarray.Dataset]) -> str:
    """What the prompts of some stores are: documents, passages of which some share a document, or no text ("prompts")."""
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


def _damaged(path: Place, what: str) -> SinkjaxError:
    return SinkjaxError(f"the store {path} is damaged ({what}); rerun the command that began it to recompute that")
