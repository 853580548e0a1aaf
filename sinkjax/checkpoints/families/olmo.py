"""OLMo (Groeneveld et al. 2024): a Llama with LayerNorms that learn nothing, perhaps with clipped queries, keys and values."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.families.llama import DEFAULTS
from sinkjax.checkpoints.family import Family, Separator, biases, rotary, sizes
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.gguf_family import Gguf
from sinkjax.model.norms import LayerNorm

EPSILON = 1e-5  # from transformers' code, because no config states it


def read(fields: Fields) -> dict[str, Any]:
    bias = fields.flag("attention_bias")
    norm = {"norm": LayerNorm(EPSILON, gain=False, bias=False), "qkv_clip": fields.optional_number("clip_qkv")}
    return sizes(fields, head_dim=None) | rotary(fields) | norm | biases(bias, bias, False)


SEPARATOR = Separator("<|endoftext|>", in_front=False, note="after each document")
GGUF = Gguf(
    "olmo",
    keys={"attention.key_length": None, "attention.clamp_kqv": "clip_qkv"},
    fixed={"attention.layer_norm_epsilon": EPSILON},
    interleaved=True,
)
FAMILY = Family("olmo", read, names.LLAMA, defaults=DEFAULTS | {"tie_word_embeddings": False}, separator=SEPARATOR, gguf=GGUF)
