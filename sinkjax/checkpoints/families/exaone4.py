"""EXAONE 4 (LG AI Research, 2025): OLMo 2's block with norms by head; where layers have windows, only these are rotated."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints.families import olmo2
from sinkjax.checkpoints.family import Family, even_head_dim, rms_norm, rotary, rotated_locally, sizes, window, windows
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.gguf_family import Gguf, GgufFile


def read(fields: Fields) -> dict[str, Any]:
    values, norm, size = sizes(fields), rms_norm(fields)["norm"], window(fields)
    sized = windows(fields, size, local(fields, size), values["layers"])
    position = rotary(fields)
    if size:
        position = rotated_locally(position, sized["windows"] or (None,) * values["layers"])
    return values | position | sized | {"norm": norm, "norm_place": "output", "qk_norm": norm}


def local(fields: Fields, size: int | None) -> Any:
    """Return whether a layer has a window; the pattern is a number, n for all but every n-th, or letters (LLLG)."""
    fields.read.add("sliding_window_pattern")
    if size is None or fields.stated("layer_types"):
        return lambda layer: False
    pattern = fields.get("sliding_window_pattern")
    lettered = isinstance(pattern, str) and pattern == "L" * (len(pattern) - 1) + "G"
    step = len(pattern) if lettered else fields.integer("sliding_window_pattern")
    return lambda layer: (layer + 1) % step != 0


def stored_kinds(file: GgufFile) -> list[str] | None:
    """Return the kinds of layers that a GGUF states, if it does: one by one, or as n for all but every n-th."""
    kinds: Any = file.own.get("attention.sliding_window_pattern")
    if type(kinds) is int and kinds > 0:
        kinds = [(layer + 1) % kinds for layer in range(int(file.number("block_count")))]
    return None if kinds is None else ["sliding_attention" if kind else "full_attention" for kind in kinds]


def window_of_release(file: GgufFile) -> int | None:
    """Return the window of a file that states none, as llama.cpp does: the 32B's, which has 64 blocks."""
    return 4096 if file.own.get("block_count") == 64 else None


DEFAULTS = {"head_dim": even_head_dim, "tie_word_embeddings": False}
GGUF = Gguf(
    "exaone4",
    keys={"attention.sliding_window_pattern": None},
    implied={"sliding_window": window_of_release, "sliding_window_pattern": 4, "layer_types": stored_kinds},
)
FAMILY = Family("exaone4", read, olmo2.TENSORS, defaults=DEFAULTS, fixed={"reorder_qk_norm": True}, gguf=GGUF)
