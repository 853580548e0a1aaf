"""OPT (Zhang et al. 2022): LayerNorm, learned positions from row 2 on, ReLU; the 350m with norms after the sums, and a narrower
embedding."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.family import Family, Separator, biases, sizes
from sinkjax.checkpoints.fields import Fields
from sinkjax.model.norms import LayerNorm
from sinkjax.model.positions import Learned

EPSILON = 1e-5  # torch's default, because no config states it

TENSORS = names.modules(
    embed="model.decoder.embed_tokens",
    embed_in="model.decoder.project_in",
    embed_out="model.decoder.project_out",
    positions="model.decoder.embed_positions",
    final_norm="model.decoder.final_layer_norm",
    unembed="lm_head",
    attn_norm="model.decoder.layers.{}.self_attn_layer_norm",
    q="model.decoder.layers.{}.self_attn.q_proj",
    k="model.decoder.layers.{}.self_attn.k_proj",
    v="model.decoder.layers.{}.self_attn.v_proj",
    o="model.decoder.layers.{}.self_attn.out_proj",
    mlp_norm="model.decoder.layers.{}.final_layer_norm",
    up="model.decoder.layers.{}.fc1",
    down="model.decoder.layers.{}.fc2",
)


def read(fields: Fields) -> dict[str, Any]:
    found = sizes(fields, kv_heads=None, head_dim=None, mlp_width="ffn_dim", activation="activation_function")
    bias, affine = fields.flag("enable_bias"), fields.flag("layer_norm_elementwise_affine")
    inner = fields.integer("word_embed_proj_dim")
    return {
        **found,
        "position": Learned(offset=2),
        "context": fields.integer("max_position_embeddings"),
        "norm": LayerNorm(EPSILON, affine, affine),
        "norm_place": "pre" if fields.flag("do_layer_norm_before") else "post",
        "embed_width": None if inner == found["width"] else inner,
        "gated_mlp": False,
        **biases(bias, bias, bias),
    }


FAMILY = Family(
    "opt",
    read,
    TENSORS,
    defaults={
        "word_embed_proj_dim": lambda fields: fields.integer("hidden_size"),
        "enable_bias": True,
        "layer_norm_elementwise_affine": True,
        "tie_word_embeddings": True,
    },
    inert=frozenset({"activation_dropout", "init_std", "layerdrop"}),
    fixed={"_remove_final_layer_norm": False},
    prefix="model.",
    separator=Separator("</s>", note="its tokenizer puts it in front"),
)
