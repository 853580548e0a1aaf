"""Mixtral (Jiang et al. 2024): a Mistral with a mixture of experts in place of each MLP."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.family import Family, Separator, even_head_dim, optional_window, rms_norm, rotary, sizes
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.gguf_family import Gguf
from sinkjax.model.experts import Experts

TENSORS = {
    **names.LLAMA,
    **names.modules("model.layers.{}.block_sparse_moe", router="gate"),
    **names.modules("model.layers.{}.block_sparse_moe.experts.{}", gate="w1", up="w3", down="w2"),
}


def read(fields: Fields) -> dict[str, Any]:
    values, size = sizes(fields), optional_window(fields)
    experts = Experts(fields.integer("num_local_experts"), fields.integer("num_experts_per_tok"))
    return values | rotary(fields) | rms_norm(fields) | {"windows": size and (size,) * values["layers"], "experts": experts}


DEFAULTS = {"head_dim": even_head_dim}
SEPARATOR = Separator("<s>", note="its tokenizer puts it in front")
GGUF = Gguf(
    "llama",
    keys={"expert_count": "num_local_experts", "expert_used_count": "num_experts_per_tok"},
    interleaved=True,
    suits=lambda file: bool(file.own.get("expert_count")),
)
FAMILY = Family("mixtral", read, TENSORS, defaults=DEFAULTS, layouts=(names.FUSED_EXPERTS,), separator=SEPARATOR, gguf=GGUF)
