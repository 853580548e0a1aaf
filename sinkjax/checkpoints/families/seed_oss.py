"""Seed-OSS (ByteDance, 2025): a Llama with biases of queries, keys and values."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.family import Family, biases, rms_norm, rotary, sizes
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.gguf_family import Gguf


def read(fields: Fields) -> dict[str, Any]:
    flags = (fields.flag(f"{which}_bias") for which in ("attention", "attention_out", "mlp"))
    return sizes(fields) | rotary(fields) | rms_norm(fields) | biases(*flags)


DEFAULTS = {"attention_bias": True, "attention_out_bias": False, "mlp_bias": False, "tie_word_embeddings": False}
GGUF = Gguf("seed_oss", tensors=names.modules("blk.{}", mlp_norm="post_attention_norm"))
FAMILY = Family("seed_oss", read, names.LLAMA, defaults=DEFAULTS, gguf=GGUF)
