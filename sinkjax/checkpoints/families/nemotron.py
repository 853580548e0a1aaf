"""Nemotron (NVIDIA 2024, Minitron its pruned sizes): LayerNorm with a gain around 1, squared ReLU, half of each head rotated."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.families.llama import DEFAULTS
from sinkjax.checkpoints.family import Family, biases, even_head_dim, rotary, sizes
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.gguf_family import Gguf
from sinkjax.model.norms import OffsetLayerNorm


def read(fields: Fields) -> dict[str, Any]:
    values, bias = sizes(fields), fields.flag("attention_bias")
    layout = {"gated_mlp": False, "norm": OffsetLayerNorm(fields.number("norm_eps"))}
    return values | layout | rotary(fields, values["head_dim"], partial=0.5) | biases(bias, bias, fields.flag("mlp_bias"))


FAMILY = Family(
    "nemotron",
    read,
    names.LLAMA,
    spelled={"kv_channels": "head_dim", "rope_percent": "partial_rotary_factor", "rope_percentage": "partial_rotary_factor"},
    defaults=DEFAULTS | {"head_dim": even_head_dim, "tie_word_embeddings": False},
    gguf=Gguf("nemotron", keys={"attention.layer_norm_epsilon": "norm_eps"}, act="relu2", partial=True, offset_norms=True),
)
