"""Nemotron (NVIDIA 2024, Minitron its pruned sizes): LayerNorm with a gain around 1, squared ReLU, half of each head rotated."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.family import Family, as_many_as_heads, biases, even_head_dim, rotary, sizes
from sinkjax.checkpoints.fields import Fields, always
from sinkjax.checkpoints.gguf_family import Gguf, has
from sinkjax.model.norms import OffsetLayerNorm


def read(fields: Fields) -> dict[str, Any]:
    found, attention = sizes(fields), fields.flag("attention_bias")
    layout = {"gated_mlp": False, "norm": OffsetLayerNorm(fields.number("norm_eps"))}
    return found | layout | rotary(fields, found["head_dim"], partial=0.5) | biases(attention, attention, fields.flag("mlp_bias"))


VALUES = {"hidden_act": "relu2", "norm_eps": 1e-5, "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "head_dim": 128}
VALUES |= {"tie_word_embeddings": False, "initializer_range": 0.0134}

FAMILY = Family(
    "nemotron",
    read,
    names.LLAMA,
    spelled={"kv_channels": "head_dim", "rope_percent": "partial_rotary_factor", "rope_percentage": "partial_rotary_factor"},
    defaults={
        "head_dim": even_head_dim,
        "num_key_value_heads": as_many_as_heads,
        "attention_bias": always(False),
        "mlp_bias": always(False),
        "rope_theta": always(10000.0),
        "tie_word_embeddings": always(False),
    },
    gguf=Gguf(
        "nemotron",
        keys={"attention.layer_norm_epsilon": "norm_eps"},
        implied={"hidden_act": "relu2", "attention_bias": has("q_bias"), "mlp_bias": has("up_bias")},
        partial=True,
        offset_norms=True,
    ),
)
