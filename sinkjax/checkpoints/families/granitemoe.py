"""Granite 3's mixtures of experts (IBM, 2024): a Granite with experts in every layer, all of a layer in one tensor."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.families import granite
from sinkjax.checkpoints.family import COMMON, Family
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.gguf_family import Gguf
from sinkjax.checkpoints.names import LeafPart
from sinkjax.model.experts import Experts

MIXTURE = "model.layers.{}.block_sparse_moe"
TENSORS = {
    **names.LLAMA,
    "router": f"{MIXTURE}.router.layer.weight",
    **names.fused(f"{MIXTURE}.input_linear", names.halves, ("gate", "up"), stacked=True),
    "down": LeafPart(f"{MIXTURE}.output_linear.weight", stacked=True),
}
# As transformers 5 holds them.
RENAMED = {
    "router": f"{MIXTURE}.router.weight",
    **names.fused(f"{MIXTURE}.experts.gate_up_proj", names.halves, ("gate", "up"), ends=("", "_bias"), stacked=True),
    "down": LeafPart(f"{MIXTURE}.experts.down_proj", stacked=True),
}


def read(fields: Fields) -> dict[str, Any]:
    experts = Experts(fields.integer("num_local_experts"), fields.integer("num_experts_per_tok"))
    return granite.read(fields) | {"experts": experts}


DEFAULTS = COMMON | {"rope_theta": 10000.0, "mlp_bias": False} | dict.fromkeys(granite.FACTORS, 1.0)
GGUF = Gguf(
    "granitemoe",
    keys={**granite.GGUF.keys, "expert_count": "num_local_experts", "expert_used_count": "num_experts_per_tok"},
    implied=granite.GGUF.implied,
    interleaved=True,
)
FAMILY = Family("granitemoe", read, TENSORS, defaults=DEFAULTS, fixed={"mlp_bias": False}, layouts=(RENAMED,), gguf=GGUF)
