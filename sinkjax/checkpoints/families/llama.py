"""Llama 1 to 3, TinyLlama, SmolLM 1 and 2, and all other models stored as a Llama (Touvron et al. 2023)."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.family import Family, Separator, as_many_as_heads, biases, even_head_dim, rms_norm, rotary, sizes
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.gguf_family import Gguf, GgufFile


def read(fields: Fields) -> dict[str, Any]:
    """Read the config; `attention_bias` applies to all four projections."""
    bias = fields.flag("attention_bias")
    return sizes(fields) | rotary(fields) | rms_norm(fields) | biases(bias, bias, fields.flag("mlp_bias"))


def window_of_mistral(file: GgufFile) -> dict[str, str]:
    """Return why a Mistral's file must state its window: by name, or by the shape of Mistral 7B v0.1, which has many children."""
    first = {"block_count": 32, "embedding_length": 4096, "feed_forward_length": 14336, "context_length": 32768}
    shaped = all(file.own.get(key) == value for key, value in first.items()) and file.own.get("rope.freq_base", 1e4) == 1e4
    if not shaped and "mistral" not in file.name.lower() and "ministral" not in file.name.lower():
        return {}
    return {"sliding_window": "it is a Mistral, of which some have a window (4096 in 7B v0.1) and others none (None)"}


# head_dim came with Llama 3.2 era configs; key-value heads with Llama 2; rope_theta with Code Llama, after Llama 2; the bias
# flags later still.
DEFAULTS = {"num_key_value_heads": as_many_as_heads, "rope_theta": 10000.0, "attention_bias": False, "mlp_bias": False}

SEPARATOR = Separator(
    "<s> or <|begin_of_text|>", in_front=True, note="Llama 1 to 3, TinyLlama; SmolLM2: <|endoftext|>, not in front"
)
GGUF = Gguf(
    "llama",
    interleaved=True,
    suits=lambda file: not file.own.get("expert_count") and "attention.sliding_window" not in file.own,
    unstated=window_of_mistral,
)
FAMILY = Family("llama", read, names.LLAMA, defaults=DEFAULTS | {"head_dim": even_head_dim}, separator=SEPARATOR, gguf=GGUF)
