"""Qwen3's mixtures of experts (2025), in every layer."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.families import qwen3
from sinkjax.checkpoints.family import Family, Separator, even_head_dim, optional_window, rotary, sizes
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.gguf_family import Gguf
from sinkjax.model.experts import Experts

TENSORS = {
    **qwen3.TENSORS,
    **names.modules("model.layers.{}.mlp", router="gate"),
    **names.modules("model.layers.{}.mlp.experts.{}", gate="gate_proj", up="up_proj", down="down_proj"),
}


def read(fields: Fields) -> dict[str, Any]:
    """Read the config; intermediate_size applies only to layers without experts, and this family has none."""
    values = sizes(fields, mlp_width="moe_intermediate_size")
    size = optional_window(fields) if fields.flag("use_sliding_window") else None
    fields.read |= {"sliding_window", "max_window_layers", "intermediate_size", "layer_types"}
    windows = {"windows": size and (size,) * values["layers"]}
    return values | rotary(fields) | qwen3.attention(fields) | windows | {"experts": experts(fields)}


def experts(fields: Fields) -> Experts:
    """Read the mixture."""
    count, active = fields.integer("num_experts"), fields.integer("num_experts_per_tok")
    return Experts(count, active, normalised=fields.flag("norm_topk_prob"))


DEFAULTS = {"head_dim": even_head_dim, "use_sliding_window": False, "attention_bias": False}
SPELLED = {"num_local_experts": "num_experts"}
FIXED = {"decoder_sparse_step": 1, "mlp_only_layers": []}
SEPARATOR = Separator("<|endoftext|>", in_front=False, note="after each document; it has no BOS")
GGUF = Gguf(
    "qwen3moe",
    keys={
        "expert_count": "num_experts",
        "expert_used_count": "num_experts_per_tok",
        "expert_feed_forward_length": "moe_intermediate_size",
    },
    implied={"norm_topk_prob": True},
)
FAMILY = Family(
    "qwen3_moe",
    read,
    TENSORS,
    defaults=DEFAULTS,
    spelled=SPELLED,
    fixed=FIXED,
    layouts=(names.FUSED_EXPERTS,),
    separator=SEPARATOR,
    gguf=GGUF,
)
