"""ERNIE 4.5 (Baidu, 2025), dense: a Llama with pairs (2i, 2i + 1) rotated, and biases everywhere or nowhere."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.family import Family, biases, rms_norm, rotary, sizes
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.gguf_family import Gguf

TENSORS = names.LLAMA | names.each("model.layers.{}.self_attn", names.half_split, q="q_proj", k="k_proj")


def read(fields: Fields) -> dict[str, Any]:
    bias = fields.flag("use_bias")
    return sizes(fields) | rotary(fields) | rms_norm(fields) | biases(bias, bias, bias)


GGUF = Gguf("ernie4_5", tensors=names.each("blk.{}", names.half_split, q="attn_q", k="attn_k"))
FAMILY = Family("ernie4_5", read, TENSORS, defaults={"use_bias": False, "tie_word_embeddings": True}, gguf=GGUF)
