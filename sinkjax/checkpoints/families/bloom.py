"""BLOOM (2022): LayerNorm, also on the embedding, ALiBi, and biases everywhere."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.family import Family, Separator, biases, layer_norm, sizes
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.gguf_family import EVEN_HEADS, Gguf
from sinkjax.model.positions import PowerAlibi

TENSORS = {
    **names.modules("transformer", embed="word_embeddings", embed_norm="word_embeddings_layernorm", final_norm="ln_f"),
    **names.modules("transformer.h.{}", attn_norm="input_layernorm", mlp_norm="post_attention_layernorm"),
    **names.modules("transformer.h.{}", o="self_attention.dense", up="mlp.dense_h_to_4h", down="mlp.dense_4h_to_h"),
    **names.modules(unembed="lm_head"),
    **names.fused("transformer.h.{}.self_attention.query_key_value", names.grouped),
}


def read(fields: Fields) -> dict[str, Any]:
    """Read the config; ALiBi does not bound the context, so we use the pretraining context."""
    values = sizes(fields, layers="n_layer", heads="n_head", kv_heads=None, head_dim=None, mlp_width=None, activation=None)
    mlp = {"mlp_width": 4 * values["width"], "activation": "gelu_bloom", "gated_mlp": False}
    position = {"position": PowerAlibi(), "context": fields.integer("seq_length"), "embed_norm": True}
    return values | mlp | position | layer_norm(fields, "layer_norm_epsilon") | biases(True, True, True)


DEFAULTS = {"seq_length": 2048, "tie_word_embeddings": True}
SPELLED = {"n_embed": "hidden_size", "num_attention_heads": "n_head", "num_hidden_layers": "n_layer"}
INERT = frozenset(
    {"attention_softmax_in_fp32", "bias_dropout_fusion", "masked_softmax_fusion", "n_inner", "offset_alibi"}
    | {"skip_bias_add", "skip_bias_add_qkv", "slow_but_exact"}
)
FIXED = {"apply_residual_connection_post_layernorm": False}
SEPARATOR = Separator("</s>", in_front=False, note="after each document")
GGUF = Gguf(
    "bloom",
    act=None,
    keys=EVEN_HEADS
    | {"context_length": "seq_length", "feed_forward_length": None, "attention.layer_norm_epsilon": "layer_norm_epsilon"},
)
FAMILY = Family(
    "bloom", read, TENSORS, defaults=DEFAULTS, spelled=SPELLED, inert=INERT, fixed=FIXED, separator=SEPARATOR, gguf=GGUF
)
