"""Command R and Aya (Cohere, 2024): attention and MLP in parallel behind one LayerNorm, neighbouring dims rotated."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.family import Family, as_many_as_heads, biases, layer_norm, rotary, sizes
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.gguf_family import Gguf
from sinkjax.model.config import Multipliers
from sinkjax.model.norms import EachHead

TENSORS = {
    **names.LLAMA,
    **names.each("model.layers.{}.self_attn", names.half_split, q="q_proj", k="k_proj"),
    **names.each("model.layers.{}.self_attn", names.half_split, rows=True, q_norm="q_norm", k_norm="k_norm"),
}


def block(fields: Fields) -> dict[str, Any]:
    """Read the fields that both generations share."""
    norm, bias = layer_norm(fields, "layer_norm_eps", bias=False), fields.flag("attention_bias")
    scale = {"multipliers": Multipliers(logits=fields.number("logit_scale", low=0))}
    return sizes(fields, head_dim=None) | norm | scale | {"norm_place": "parallel-shared"} | biases(bias, bias, False)


def read(fields: Fields) -> dict[str, Any]:
    values = block(fields)
    return values | rotary(fields) | {"qk_norm": EachHead(values["norm"]) if fields.flag("use_qk_norm") else None}


DEFAULTS = {"num_key_value_heads": as_many_as_heads, "attention_bias": False, "tie_word_embeddings": True}

GGUF_KEYS = {"attention.key_length": None, "attention.layer_norm_epsilon": "layer_norm_eps", "logit_scale": "logit_scale"}
GGUF_TENSORS = names.each("blk.{}", names.half_split, q="attn_q", k="attn_k", q_norm="attn_q_norm", k_norm="attn_k_norm")

GGUF = Gguf("command-r", keys=GGUF_KEYS, tensors=GGUF_TENSORS)
FAMILY = Family("cohere", read, TENSORS, defaults=DEFAULTS | {"use_qk_norm": False}, gguf=GGUF)
