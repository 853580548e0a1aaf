"""Granite 3 (IBM, 2024): a Llama with constant factors on embedding, scores, residual updates and logits."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.families.llama import DEFAULTS
from sinkjax.checkpoints.family import Family, biases, rms_norm, rotary, sizes
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.gguf_family import Gguf, has
from sinkjax.model.config import Multipliers


def read(fields: Fields) -> dict[str, Any]:
    bias = fields.flag("attention_bias")
    factors = Multipliers(
        fields.factor("embedding_multiplier"), fields.factor("residual_multiplier"), 1 / fields.factor("logits_scaling")
    )
    scales = {"multipliers": factors, "score_scale": fields.factor("attention_multiplier")}
    norm = rms_norm(fields) | biases(bias, bias, fields.flag("mlp_bias"))
    return sizes(fields, head_dim=None) | rotary(fields) | norm | scales


FAMILY = Family(
    "granite",
    read,
    names.LLAMA,
    defaults=DEFAULTS,
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
