"""GPT-NeoX (Black et al. 2022) and Pythia (Biderman et al. 2023): attention and MLP in parallel, each behind its own norm."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.buffers import FILL, MASK
from sinkjax.checkpoints.family import Family, Separator, biases, layer_norm, rotary, sizes
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.gguf_family import EVEN_HEADS, Gguf

TENSORS = {
    **names.modules("gpt_neox", embed="embed_in", final_norm="final_layer_norm"),
    **names.modules("gpt_neox.layers.{}", attn_norm="input_layernorm", mlp_norm="post_attention_layernorm"),
    **names.modules("gpt_neox.layers.{}", o="attention.dense", up="mlp.dense_h_to_4h", down="mlp.dense_4h_to_h"),
    **names.modules(unembed="lm_head"),
    **names.fused("gpt_neox.layers.{}.attention.query_key_value", names.grouped),
}


def read(fields: Fields) -> dict[str, Any]:
    values = sizes(fields, kv_heads=None, head_dim=None)
    bias = fields.flag("attention_bias")
    layout = {"norm_place": "parallel" if fields.flag("use_parallel_residual") else "pre", "gated_mlp": False}
    position = rotary(fields, values["head_dim"], partial=0.25)
    return values | position | layer_norm(fields, "layer_norm_eps") | biases(bias, bias, True) | layout


FAMILY = Family(
    "gpt_neox",
    read,
    TENSORS,
    defaults={"attention_bias": True, "use_parallel_residual": True, "rope_theta": 10000.0},
    spelled={"rotary_pct": "partial_rotary_factor", "rotary_emb_base": "rope_theta"},
    aliases={"embed_out.weight": "lm_head.weight"},
    buffers={"*.attention.bias": MASK, "*.attention.masked_bias": FILL},
    separator=Separator("<|endoftext|>", in_front=False, note="after each document"),
    gguf=Gguf(
        "gptneox",
        keys=EVEN_HEADS | {"attention.layer_norm_epsilon": "layer_norm_eps", "use_parallel_residual": "use_parallel_residual"},
        partial=True,
        act="gelu",
    ),
)
