"""The files of a card for other programs: their names, and the mask of sinks."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkjax.config_files.files import write

VERSION = "sinkjax-card/3"
NAMES = CARD, SINKS, CLAMP, PREFIX = ("card.json", "sink_tokens.json", "clamp.json", "prefix.safetensors")


USE = """import json
from pathlib import Path

sinks = json.loads(Path("sink_tokens.json").read_text())
mask = sink_mask(tokens, sinks)  # tokens: int [..., T], with the prefix that the model reads
"""


def save(folder: Path, contents: Mapping[str, Mapping[str, Any]]) -> Path:
    """Write JSON files, by name, into a folder, which is made if it does not exist. Errors: no permission, no space."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        write(folder / name, json.dumps({"version": VERSION, **content}, indent=1, allow_nan=False) + "\n")
    return folder


def sink_mask(tokens: ArrayLike, sinks: Mapping[str, Any]) -> NDArray[np.bool_]:
    """Return which tokens are sinks. It needs numpy only, so that it may be copied into other programs.

    Args:
        tokens: Token ids, int [..., T], with the prefix that the model reads.
        sinks: The content of sink_tokens.json: `positions` that are sinks, and `tokens` that are sinks at any position.

    Returns:
        bool [..., T].
    """
    tokens = np.asarray(tokens)
    mask = np.isin(tokens, sinks["tokens"])
    mask[..., [position for position in sinks["positions"] if position < tokens.shape[-1]]] = True
    return mask


def mask_program() -> str:
    """Return `sink_mask` as a program that needs numpy only."""
    body = inspect.getsource(sink_mask).rpartition('"""')[2]
    return f"import numpy as np\n\n\ndef sink_mask(tokens, sinks):{body}"
