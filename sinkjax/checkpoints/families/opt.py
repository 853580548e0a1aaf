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

TENSORS = {
    **names.modules("model.decoder", embed="embed_tokens", positions="embed_positions", final_norm="final_layer_norm"),
    **names.modules("model.decoder", embed_in="project_in", embed_out="project_out"),
    **names.modules("model.decoder.layers.{}", attn_norm="self_attn_layer_norm", mlp_norm="final_layer_norm"),
    **names.modules("model.decoder.layers.{}.self_attn", q="q_proj", k="k_proj", v="v_proj", o="out_proj"),
    **names.modules("model.decoder.layers.{}", up="fc1", down="fc2"),
    **names.modules(unembed="lm_head"),
}


def read(fields: Fields) -> dict[str, Any]:
    values = sizes(fields, kv_heads=None, head_dim=None, mlp_width="ffn_dim", activation="activation_function")
    bias, affine = fields.flag("enable_bias"), fields.flag("layer_norm_elementwise_affine")
    inner = fields.integer("word_embed_proj_dim")
    place = "pre" if fields.flag("do_layer_norm_before") else "post"
    norm = {"norm": LayerNorm(EPSILON, affine, affine), "norm_place": place, "gated_mlp": False}
    position = {"position": Learned(offset=2), "context": fields.integer("max_position_embeddings")}
    return values | norm | position | {"embed_width": None if inner == values["width"] else inner} | biases(bias, bias, bias)


DEFAULTS = {
    "word_embed_proj_dim": lambda fields: fields.integer("hidden_size"),
    **dict.fromkeys(("enable_bias", "layer_norm_elementwise_affine", "tie_word_embeddings"), True),
}
INERT = frozenset({"activation_dropout", "init_std", "layerdrop"})
FIXED = {"_remove_final_layer_norm": False}
SEPARATOR = Separator("</s>", note="its tokenizer puts it in front")
FAMILY = Family("opt", read, TENSORS, defaults=DEFAULTS, inert=INERT, fixed=FIXED, separator=SEPARATOR)
