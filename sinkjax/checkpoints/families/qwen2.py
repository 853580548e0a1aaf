"""Qwen2 and Qwen2.5 (2024): a Llama with biases of queries, keys and values, and perhaps windows in its last layers."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.family import (
    Family,
    Published,
    Separator,
    biases,
    decoder,
    even_head_dim,
    rms_norm,
    rotary,
    sizes,
    window,
    windows,
)
from sinkjax.checkpoints.fields import Fields, always
from sinkjax.checkpoints.gguf_family import Gguf


def late_windows(fields: Fields, layers: int) -> dict[str, Any]:
    """The windows of the layers from `max_window_layers` on."""
    size = window(fields) if fields.flag("use_sliding_window") else None
    fields.read |= {"sliding_window", "max_window_layers"}  # stated, but without effect, where no window is in use
    first = fields.integer("max_window_layers", low=0) if size and not fields.stated("layer_types") else layers
    return windows(fields, size, lambda layer: layer >= first, layers)


def read(fields: Fields) -> dict[str, Any]:
    """The config."""
    found = sizes(fields)
    return found | rotary(fields) | rms_norm(fields) | biases(True, False, False) | late_windows(fields, found["layers"])


VALUES = {"hidden_act": "silu", "initializer_range": 0.02, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0}

FAMILY = Family(
    "qwen2",
    read,
    names.LLAMA,
    defaults={"head_dim": even_head_dim, "use_sliding_window": always(False)},
    separator=Separator("<|endoftext|>", in_front=False, note="after each document; it has no BOS"),
    published={
        "qwen2.5-0.5b": Published(
            "Qwen/Qwen2.5-0.5B", VALUES | decoder(896, 4864, 24, 14, 2, 151936, 32768, tie_word_embeddings=True)
        ),
        "qwen2.5-7b": Published(
            "Qwen/Qwen2.5-7B", VALUES | decoder(3584, 18944, 28, 28, 4, 152064, 131072, tie_word_embeddings=False)
        ),
    },
    gguf=Gguf("qwen2", implied={"hidden_act": "silu"}),
)
