"""Llama 1 to 3, TinyLlama, SmolLM 1 and 2, and whatever else is stored as a Llama (Touvron et al. 2023)."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.family import (
    Family,
    Published,
    Separator,
    as_many_as_heads,
    biases,
    decoder,
    even_head_dim,
    rms_norm,
    rotary,
    sizes,
)
from sinkjax.checkpoints.fields import Fields, always
from sinkjax.checkpoints.gguf_family import Gguf, has


def read(fields: Fields) -> dict[str, Any]:
    """The config; `attention_bias` is of all four projections."""
    bias = fields.flag("attention_bias")
    return sizes(fields) | rotary(fields) | rms_norm(fields) | biases(bias, bias, fields.flag("mlp_bias"))


VALUES = {"hidden_act": "silu", "initializer_range": 0.02, "rms_norm_eps": 1e-5, "tie_word_embeddings": False}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}

FAMILY = Family(
    "llama",
    read,
    names.LLAMA,
    # head_dim came with Llama 3.2 era configs; key-value heads with Llama 2; rope_theta with Code Llama, after Llama 2; the bias
    # flags later still.
    defaults={
        "head_dim": even_head_dim,
        "num_key_value_heads": as_many_as_heads,
        "rope_theta": always(10000.0),
        "attention_bias": always(False),
        "mlp_bias": always(False),
    },
    separator=Separator(
        "<s> or <|begin_of_text|>", in_front=True, note="Llama 1 to 3, TinyLlama; SmolLM2: <|endoftext|>, not in front"
    ),
    published={
        "llama-2-7b": Published("meta-llama/Llama-2-7b-hf", VALUES | decoder(4096, 11008, 32, 32, 32, 32000, 4096)),
        "llama-3.2-3b": Published(
            "meta-llama/Llama-3.2-3B",
            VALUES
            | decoder(3072, 8192, 28, 24, 8, 128256, 131072, head_dim=128, rope_theta=500000.0)
            | {"rope_scaling": LLAMA3, "tie_word_embeddings": True},
        ),
        "tinyllama-1.1b": Published(
            "TinyLlama/TinyLlama-1.1B-intermediate-step-1431k-3T",
            VALUES | decoder(2048, 5632, 22, 32, 4, 32000, 2048, rope_theta=10000.0),
        ),
    },
    gguf=Gguf(
        "llama",
        implied={"hidden_act": "silu", "attention_bias": has("q_bias"), "mlp_bias": has("up_bias")},
        interleaved=True,
        suits=lambda file: not file.own.get("expert_count") and "attention.sliding_window" not in file.own,
    ),
)
