"""OLMo 2 (2025): norms on the outputs of attention and the MLP, and norms over all heads of the queries and of the keys."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.family import COMMON, Family, Separator, biases, rms_norm, rotary, sizes
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.gguf_family import Gguf
from sinkjax.model.norms import AllHeads

TENSORS = {
    **names.LLAMA,
    **names.modules("model.layers.{}.self_attn", q_norm="q_norm", k_norm="k_norm"),
    **names.modules("model.layers.{}", attn_out_norm="post_attention_layernorm", mlp_out_norm="post_feedforward_layernorm"),
}


def block(fields: Fields) -> dict[str, Any]:
    """Read the fields that OLMo 2 and 3 share."""
    norm, bias = rms_norm(fields), fields.flag("attention_bias")
    layout = {"norm_place": "output", "qk_norm": AllHeads(norm["norm"])}
    return sizes(fields, head_dim=None) | norm | layout | biases(bias, bias, False)


def read(fields: Fields) -> dict[str, Any]:
    return block(fields) | rotary(fields)


SEPARATOR = Separator("<|endoftext|>", in_front=False, note="after each document")
GGUF = Gguf("olmo2", keys={"attention.key_length": None}, suits=lambda file: not file.own.get("attention.sliding_window"))
FAMILY = Family("olmo2", read, TENSORS, defaults=COMMON, separator=SEPARATOR, gguf=GGUF)
