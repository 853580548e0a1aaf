"""GLM-4-0414 (Zhipu, 2025): a GLM with norms on the outputs of attention and the MLP too."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.families import glm
from sinkjax.checkpoints.family import Family
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.gguf_family import Gguf

TENSORS = glm.TENSORS | names.modules(
    "model.layers.{}", attn_out_norm="post_self_attn_layernorm", mlp_out_norm="post_mlp_layernorm"
)


def read(fields: Fields) -> dict[str, Any]:
    return glm.read(fields) | {"norm_place": "sandwich"}


GGUF = Gguf(
    "glm4",
    implied={"attention_bias": lambda file: file.has("q_bias")},
    tensors=names.each("blk.{}", names.half_split, q="attn_q", k="attn_k")
    | names.fused("blk.{}.ffn_up", names.halves, leaves=("gate", "up")),
    partial=True,
)
FAMILY = Family("glm4", read, TENSORS, defaults={"tie_word_embeddings": False}, gguf=GGUF)
