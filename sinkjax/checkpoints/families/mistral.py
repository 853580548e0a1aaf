"""Mistral 7B (Jiang et al. 2023): a Llama, in its first version with a sliding window in every layer."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.family import Family, Separator, even_head_dim, rms_norm, rotary, sizes, window
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.gguf_family import Gguf


def read(fields: Fields) -> dict[str, Any]:
    """Read the config; `layer_types` (Ministral 8B's file) is without effect where a window holds the whole context."""
    size, values, position = window(fields), sizes(fields), rotary(fields)
    fields.read |= {"layer_types"} if size and size >= position["context"] else set()
    return values | position | rms_norm(fields) | {"windows": size and (size,) * values["layers"]}


SEPARATOR = Separator("<s>", note="its tokenizer puts it in front")
GGUF = Gguf(
    "llama", interleaved=True, suits=lambda file: "attention.sliding_window" in file.own and not file.own.get("expert_count")
)
FAMILY = Family("mistral", read, names.LLAMA, defaults={"head_dim": even_head_dim}, separator=SEPARATOR, gguf=GGUF)
