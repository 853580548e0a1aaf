"""The end of a figure's caption, which names its data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sinkjax.checkpoints.presets import named
from sinkjax.studies import folder

if TYPE_CHECKING:
    import xarray


TOKENS, POSITIONS = 20, 24  # drawn of each prompt, so that a tick is legible and a column is visible


def source(
    data: xarray.Dataset,
    bands: bool = True,
    others: Sequence[xarray.Dataset] = (),
    text: bool = True,
    over: str = "prompt",
) -> str:
    """The end of a caption: intervals, prompts, model, precision, BOS (unless the stores differ in it) and text.

    others: further stores that are drawn. text: whether the numbers depend on a text. over: dimension that intervals are over.
    """
    made, study = data.attrs["sweep"], data.attrs.get("study", {})  # a store that Python made states no study
    counts = dict.fromkeys(str(one.sizes[over]) for one in (data, *others) if over in one.sizes)
    texts = dict.fromkeys(one.attrs["study"]["text"].partition(", because")[0] for one in (data, *others) if "study" in one.attrs)
    bos = f", BOS {study['bos']}" if study and all(one.attrs["study"]["bos"] == study["bos"] for one in others) else ""
    units = folder.over((data, *others)) if over == "prompt" else f"{over}s"
    prompts = f"{' or '.join(counts)} {units}"
    said = f"Bands: 95% intervals over {prompts}. " if bands and counts else f"{prompts}. " * bool(counts)
    read = f"{bos}, {'; '.join(texts)}" if text and texts else ""
    return f"{said}{named(made['model'])} in {made['dtype']}{read}."
