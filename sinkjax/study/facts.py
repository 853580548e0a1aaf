"""Facts about stores, for captions and pages: how they were made, and from which prompts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sinkjax.checkpoints.presets import named

if TYPE_CHECKING:
    import xarray

TRAINED_WITH = "trained_with"  # in a store of prompts without it, the text of the token that the model had before its texts


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


def bos_warning(model: str, study: Mapping[str, Any]) -> str:
    """Say that prompts lack the token that the model was trained with; "" if they do not."""
    token = study.get(TRAINED_WITH)
    return f"{model} was trained with {token} before its texts, and these prompts have none; --bos auto adds it" if token else ""


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
