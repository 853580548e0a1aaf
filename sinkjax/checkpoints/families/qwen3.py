"""Qwen3 (2025): a Llama with a norm of each head's queries and keys."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.families.qwen2 import late_windows
from sinkjax.checkpoints.family import Family, Separator, biases, rms_norm, rotary, sizes
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.gguf_family import Gguf, has

TENSORS = names.LLAMA | names.modules("model.layers.{}.self_attn", q_norm="q_norm", k_norm="k_norm")


def attention(fields: Fields) -> dict[str, Any]:
    """Read the fields that Qwen3 and its mixtures of experts share."""
    norm, bias = rms_norm(fields), fields.flag("attention_bias")
    return norm | {"qk_norm": norm["norm"]} | biases(bias, bias, False)


def read(fields: Fields) -> dict[str, Any]:
    found = sizes(fields)
    return found | rotary(fields) | attention(fields) | late_windows(fields, found["layers"])


FAMILY = Family(
    "qwen3",
    read,
    TENSORS,
    defaults={"use_sliding_window": False, "attention_bias": False},
    separator=Separator("<|endoftext|>", in_front=False, note="after each document; it has no BOS"),
    gguf=Gguf("qwen3", implied={"hidden_act": "silu", "attention_bias": has("q_bias")}),
)
