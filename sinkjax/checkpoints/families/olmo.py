"""OLMo (Groeneveld et al. 2024): a Llama with LayerNorms that learn nothing, perhaps with clipped queries, keys and values."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.family import Family, Published, Separator, as_many_as_heads, biases, decoder, rotary, sizes
from sinkjax.checkpoints.fields import Fields, always
from sinkjax.checkpoints.gguf_family import Gguf, has
from sinkjax.model.norms import LayerNorm

EPSILON = 1e-5  # in transformers' code, as no config states it


def read(fields: Fields) -> dict[str, Any]:
    """The config."""
    bias = fields.flag("attention_bias")
    norm = {"norm": LayerNorm(EPSILON, gain=False, bias=False), "qkv_clip": fields.optional_number("clip_qkv")}
    return sizes(fields, head_dim=None) | rotary(fields) | norm | biases(bias, bias, False)


VALUES = {"hidden_act": "silu", "initializer_range": 0.02, "rope_theta": 10000.0}

FAMILY = Family(
    "olmo",
    read,
    names.LLAMA,
    defaults={
        "num_key_value_heads": as_many_as_heads,
        "rope_theta": always(10000.0),
        "attention_bias": always(False),
        "tie_word_embeddings": always(False),
    },
    separator=Separator("<|endoftext|>", in_front=False, note="after each document"),
    published={
        "olmo-1b": Published(
            "allenai/OLMo-1B-hf", VALUES | decoder(2048, 8192, 16, 16, 16, 50304, 2048, tie_word_embeddings=True)
        ),
        "olmo-7b": Published(
            "allenai/OLMo-7B-hf", VALUES | decoder(4096, 11008, 32, 32, 32, 50304, 2048, tie_word_embeddings=False)
        ),
    },
    gguf=Gguf(
        "olmo",
        keys={"attention.key_length": None, "attention.clamp_kqv": "clip_qkv"},
        implied={"hidden_act": "silu", "attention_bias": has("q_bias")},
        fixed={"attention.layer_norm_epsilon": EPSILON},
        interleaved=True,
    ),
)
