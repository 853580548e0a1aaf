"""OLMoE (Muennighoff et al. 2024): a mixture of experts with norms over all heads of the queries and of the keys."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.families import qwen3_moe
from sinkjax.checkpoints.family import COMMON, Family, biases, rms_norm, rotary, sizes
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.gguf_family import Gguf
from sinkjax.model.norms import AllHeads


def read(fields: Fields) -> dict[str, Any]:
    norm, bias = rms_norm(fields), fields.flag("attention_bias")
    mixture = {"qk_norm": AllHeads(norm["norm"]), "experts": qwen3_moe.experts(fields)}
    return sizes(fields, head_dim=None) | rotary(fields) | norm | mixture | biases(bias, bias, False)


DEFAULTS = COMMON | {"norm_topk_prob": False}
SPELLED = {"num_local_experts": "num_experts"}
GGUF = Gguf(
    "olmoe",
    keys={"attention.key_length": None, "expert_count": "num_experts", "expert_used_count": "num_experts_per_tok"},
    implied={"norm_topk_prob": False},
)
FIXED = {"clip_qkv": None}  # it would clip after the norm
FAMILY = Family(
    "olmoe",
    read,
    qwen3_moe.TENSORS,
    defaults=DEFAULTS,
    spelled=SPELLED,
    fixed=FIXED,
    layouts=(names.FUSED_EXPERTS,),
    gguf=GGUF,
)
