"""Where a figure's numbers come from, in the words of a caption."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import xarray


def origin(data: xarray.Dataset, text: bool = True) -> str:
    """Model and precision of a store and, with `text`, the BOS and the text that it was measured on."""
    made, study = data.attrs["sweep"], data.attrs["study"]
    words = f"{made['model']['name']} in {made['dtype']}"
    return f"{words}, BOS {study['bos']}, {study['text'].partition(', because')[0]}" if text else words
