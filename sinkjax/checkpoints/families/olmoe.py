"""OLMoE (Muennighoff et al. 2024): a mixture of experts with norms over all heads of the queries and of the keys."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints.families import qwen3_moe
from sinkjax.checkpoints.family import Family, as_many_as_heads, biases, rms_norm, rotary, sizes
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.gguf_family import Gguf, has
from sinkjax.model.norms import AllHeads


def read(fields: Fields) -> dict[str, Any]:
    norm, bias = rms_norm(fields), fields.flag("attention_bias")
    mixture = {"qk_norm": AllHeads(norm["norm"]), "experts": qwen3_moe.experts(fields)}
    return sizes(fields, head_dim=None) | rotary(fields) | norm | mixture | biases(bias, bias, False)


FAMILY = Family(
    "olmoe",
    read,
    qwen3_moe.TENSORS,
    defaults={
        "num_key_value_heads": as_many_as_heads,
        "attention_bias": False,
        "norm_topk_prob": False,
        "tie_word_embeddings": False,
    },
    spelled={"num_local_experts": "num_experts"},
    fixed={"clip_qkv": None},  # it would clip after the norm
    gguf=Gguf(
        "olmoe",
        keys={"attention.key_length": None, "expert_count": "num_experts", "expert_used_count": "num_experts_per_tok"},
        implied={"hidden_act": "silu", "norm_topk_prob": False, "attention_bias": has("q_bias")},
    ),
)
