"""Gemma (2024): a Llama whose norms have a gain around 1, and whose embedding is multiplied by the root of the width."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.family import ACTIVATIONS, Family, Separator, biases, rotary, sizes
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.gguf_family import Gguf
from sinkjax.model.config import Multipliers
from sinkjax.model.norms import OffsetRMSNorm


def common(fields: Fields, key: str) -> dict[str, Any]:
    """Read fields that all Gemmas share. key: the activation's key; in Gemma 1's, "gelu" means the tanh approximation."""
    values, bias = sizes(fields, activation=None), fields.flag("attention_bias")
    name = fields.choice(key, ACTIVATIONS, key)
    return {
        **values,
        **biases(bias, bias, False),
        "activation": "gelu_tanh" if (key, name) == ("hidden_act", "gelu") else ACTIVATIONS[name],
        "norm": OffsetRMSNorm(fields.number("rms_norm_eps")),
        "multipliers": Multipliers(embedding=values["width"] ** 0.5),
    }


def read(fields: Fields) -> dict[str, Any]:
    return common(fields, "hidden_act") | rotary(fields)


DEFAULTS = {"attention_bias": False, "tie_word_embeddings": True, "rope_theta": 10000.0}

FIXED = {"use_bidirectional_attention": False, "hidden_activation": "gelu_pytorch_tanh"}
SEPARATOR = Separator("<bos>", in_front=True, note="before each document; its tokenizer adds it")
GGUF = Gguf("gemma", act="gelu_pytorch_tanh", offset_norms=True)
FAMILY = Family("gemma", read, names.LLAMA, defaults=DEFAULTS, fixed=FIXED, separator=SEPARATOR, gguf=GGUF)
