"""Granite 3 (IBM, 2024): a Llama with constant factors on embedding, scores, residual updates and logits."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.family import Family, Published, as_many_as_heads, biases, decoder, rms_norm, rotary, sizes
from sinkjax.checkpoints.fields import Fields, always
from sinkjax.checkpoints.gguf_family import Gguf, has
from sinkjax.model.config import Multipliers


def read(fields: Fields) -> dict[str, Any]:
    """The config."""
    bias = fields.flag("attention_bias")
    factors = Multipliers(
        fields.factor("embedding_multiplier"), fields.factor("residual_multiplier"), 1 / fields.factor("logits_scaling")
    )
    scales = {"multipliers": factors, "score_scale": fields.factor("attention_multiplier")}
    norm = rms_norm(fields) | biases(bias, bias, fields.flag("mlp_bias"))
    return sizes(fields, head_dim=None) | rotary(fields) | norm | scales


def published(size: str, *shape: int, attention: float, logits: float) -> Published:
    """A released size."""
    values = {"hidden_act": "silu", "initializer_range": 0.02, "rms_norm_eps": 1e-5, "tie_word_embeddings": True}
    factors = {"embedding_multiplier": 12.0, "residual_multiplier": 0.22}
    factors |= {"attention_multiplier": attention, "logits_scaling": logits}
    sized = decoder(*shape, 49155, 4096, rope_theta=10000.0)
    return Published(f"ibm-granite/granite-3.0-{size}-base", values | factors | sized)


FAMILY = Family(
    "granite",
    read,
    names.LLAMA,
    defaults={
        "num_key_value_heads": as_many_as_heads,
        "rope_theta": always(10000.0),
        "attention_bias": always(False),
        "mlp_bias": always(False),
    },
    published={
        "granite-3.0-2b": published("2b", 2048, 8192, 40, 32, 8, attention=0.015625, logits=8.0),
        "granite-3.0-8b": published("8b", 4096, 12800, 40, 32, 8, attention=0.0078125, logits=16.0),
    },
    gguf=Gguf(
        "granite",
        keys={
            "attention.key_length": None,
            "attention.scale": "attention_multiplier",
            "embedding_scale": "embedding_multiplier",
            "logit_scale": "logits_scaling",
            "residual_scale": "residual_multiplier",
        },
        implied={"hidden_act": "silu", "attention_bias": has("q_bias"), "mlp_bias": has("up_bias")},
        interleaved=True,
    ),
)
