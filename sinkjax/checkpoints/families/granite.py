"""Granite 3 (IBM, 2024): a Llama with constant factors on embedding, scores, residual updates and logits."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.families.llama import DEFAULTS
from sinkjax.checkpoints.family import Family, biases, rms_norm, rotary, sizes
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.gguf_family import Gguf, has
from sinkjax.model.config import Multipliers

# Factors -> the least; None: above 0, as a divisor and a scale of scores must be.
FACTORS = {"embedding_multiplier": 0, "residual_multiplier": 0, "logits_scaling": None, "attention_multiplier": None}


def read(fields: Fields) -> dict[str, Any]:
    bias = fields.flag("attention_bias")
    embedding, residual, logits, scores = (fields.number(key, low) for key, low in FACTORS.items())
    scales = {"multipliers": Multipliers(embedding, residual, 1 / logits), "score_scale": scores}
    norm = rms_norm(fields) | biases(bias, bias, fields.flag("mlp_bias"))
    return sizes(fields, head_dim=None) | rotary(fields) | norm | scales


FAMILY = Family(
    "granite",
    read,
    names.LLAMA,
    defaults=DEFAULTS | dict.fromkeys(FACTORS, 1.0),
    gguf=Gguf(
        "granite",
        keys={
            "attention.key_length": None,
            "attention.scale": "attention_multiplier",
            "embedding_scale": "embedding_multiplier",
            "logit_scale": "logits_scaling",
            "residual_scale": "residual_multiplier",
        },
        implied={
            "hidden_act": "silu",
            "attention_multiplier": lambda file: (file.number("embedding_length") / file.number("attention.head_count")) ** -0.5,
            "attention_bias": has("q_bias"),
            "mlp_bias": has("up_bias"),
        },
        interleaved=True,
    ),
)
