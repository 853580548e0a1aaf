"""Helium (Kyutai, 2025): a Llama with pairs (2i, 2i + 1) rotated."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints.families import ernie4_5
from sinkjax.checkpoints.family import Family, biases, rms_norm, rotary, sizes
from sinkjax.checkpoints.fields import Fields


def read(fields: Fields) -> dict[str, Any]:
    """Read the config; W_O never has a bias."""
    norm = rms_norm(fields) | biases(fields.flag("attention_bias"), False, fields.flag("mlp_bias"))
    return sizes(fields) | rotary(fields) | norm


DEFAULTS = {"head_dim": 128, "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False}
FAMILY = Family("helium", read, ernie4_5.TENSORS, defaults=DEFAULTS)
