"""Qwen2 and Qwen2.5 (2024): a Llama with biases of queries, keys and values, and perhaps windows in its last layers."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.family import Family, Separator, biases, even_head_dim, rms_norm, rotary, sizes, window, windows
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.gguf_family import Gguf


def late_windows(fields: Fields, layers: int) -> dict[str, Any]:
    """Return the windows of the layers from `max_window_layers` on."""
    size = window(fields) if fields.flag("use_sliding_window") else None
    fields.read |= {"sliding_window", "max_window_layers"}  # stated, but without effect if no window is in use
    first = fields.integer("max_window_layers", low=0) if size and not fields.stated("layer_types") else layers
    return windows(fields, size, lambda layer: layer >= first, layers)


def read(fields: Fields) -> dict[str, Any]:
    found = sizes(fields)
    return found | rotary(fields) | rms_norm(fields) | biases(True, False, False) | late_windows(fields, found["layers"])


DEFAULTS = {"head_dim": even_head_dim, "use_sliding_window": False}
SEPARATOR = Separator("<|endoftext|>", in_front=False, note="after each document; it has no BOS")
FAMILY = Family("qwen2", read, names.LLAMA, defaults=DEFAULTS, separator=SEPARATOR, gguf=Gguf("qwen2"))
