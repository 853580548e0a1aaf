"""Granite 3 (IBM, 2024): a Llama with constant factors on embedding, scores, residual updates and logits."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.families.llama import DEFAULTS
from sinkjax.checkpoints.family import Family, biases, rms_norm, rotary, sizes
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.gguf_family import Gguf, GgufFile
from sinkjax.model.config import Multipliers

# Factors -> the least; None: above 0, as a divisor and a scale of scores must be.
FACTORS = {"embedding_multiplier": 0, "residual_multiplier": 0, "logits_scaling": None, "attention_multiplier": None}


def read(fields: Fields, mlp_width: str = "intermediate_size") -> dict[str, Any]:
    """Read the config. mlp_width: key of the MLP's width."""
    bias = fields.flag("attention_bias")
    embedding, residual, logits, scores = (fields.number(key, low) for key, low in FACTORS.items())
    scales = {"multipliers": Multipliers(embedding, residual, 1 / logits), "score_scale": scores}
    norm = rms_norm(fields) | biases(bias, bias, fields.flag("mlp_bias"))
    return sizes(fields, head_dim=None, mlp_width=mlp_width) | rotary(fields) | norm | scales


def usual_scale(file: GgufFile) -> float:
    """Return the factor on the scores of a file that states none or 0, as llama.cpp does."""
    return (file.number("attention.head_count") / max(file.number("embedding_length"), 1)) ** 0.5


GGUF = Gguf(
    "granite",
    keys={"attention.key_length": None, "attention.scale": "attention_multiplier", "embedding_scale": "embedding_multiplier"}
    | {"logit_scale": "logits_scaling", "residual_scale": "residual_multiplier"},
    implied={"attention_multiplier": usual_scale},
    interleaved=True,
)
FAMILY = Family("granite", read, names.LLAMA, defaults=DEFAULTS | dict.fromkeys(FACTORS, 1.0), gguf=GGUF)
