"""Falcon (Almazrouei et al. 2023): one norm and one key-value head (7B), two and groups (40B), or ALiBi in a usual block (RW)."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.families.bloom import TENSORS
from sinkjax.checkpoints.family import Family, Separator, as_many_as_heads, biases, even_head_dim, layer_norm, rotary, sizes
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.gguf_family import Gguf
from sinkjax.config_files.checks import refuse
from sinkjax.model.config import Config
from sinkjax.model.positions import PowerAlibi

TWO_NORMS = names.modules("transformer.h.{}", attn_norm="ln_attn", mlp_norm="ln_mlp")

GGUF_TWO_NORMS = names.modules("blk.{}", attn_norm="attn_norm_2", mlp_norm="attn_norm")
SECOND = "blk.0.attn_norm_2.weight"


def tensors(config: Config) -> names.Table:
    """Return the tensor names; a parallel block with two norms names them differently."""
    return TENSORS | TWO_NORMS if config.norm_place == "parallel" else TENSORS


def read(fields: Fields) -> dict[str, Any]:
    values = sizes(fields, kv_heads=None, head_dim=None, mlp_width="ffn_hidden_size", activation="activation")
    groups, bias = fields.flag("new_decoder_architecture"), fields.flag("bias")
    one, stated = fields.flag("multi_query"), fields.integer("num_kv_heads")
    values["kv_heads"] = stated if groups else 1 if one else values["heads"]
    if fields.flag("alibi"):
        factor = even_head_dim(fields) ** -0.5  # it is added before the scores are scaled
        position = {"position": PowerAlibi(factor=factor, rounded=True), "context": fields.integer("max_position_embeddings")}
        fields.read |= {"rope_theta", "rope_scaling"}
    else:
        position = rotary(fields)
    norm = layer_norm(fields, "layer_norm_epsilon") | biases(bias, bias, bias)
    return values | position | {"norm_place": layout(fields, groups), "gated_mlp": False} | norm


def layout(fields: Fields, groups: bool) -> str:
    """Return the places of the norms."""
    parallel, norms = fields.flag("parallel_attn"), fields.optional_number("num_ln_in_parallel_attn", low=0)
    refuse(groups and not parallel, f"{fields.where} has new_decoder_architecture without parallel_attn, which is not supported")
    if not parallel:
        return "pre"
    return "parallel" if groups and norms in (None, 2) else "parallel-shared"


DEFAULTS = {
    "ffn_hidden_size": lambda fields: 4 * fields.integer("hidden_size"),
    "num_kv_heads": as_many_as_heads,
    "activation": "gelu",
    "max_position_embeddings": 2048,
    "rope_theta": 10000.0,
    **dict.fromkeys(("multi_query", "parallel_attn", "tie_word_embeddings"), True),
    **dict.fromkeys(("new_decoder_architecture", "bias", "alibi"), False),
}
SPELLED = {"n_embed": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads"}
FIXED = {"apply_residual_connection_post_layernorm": False}
SEPARATOR = Separator("<|endoftext|>", in_front=False, note="after each document")
GGUF = Gguf(
    "falcon",
    act=None,
    keys={"attention.head_count_kv": "num_kv_heads", "attention.key_length": None}
    | {"attention.layer_norm_epsilon": "layer_norm_epsilon", "feed_forward_length": "ffn_hidden_size"},
    implied={"activation": "gelu", "alibi": False, "multi_query": True, "parallel_attn": True}
    | {
        "new_decoder_architecture": lambda file: file.number("attention.head_count_kv") != 1,
        "num_ln_in_parallel_attn": lambda file: 2 if SECOND in file.tensors else 1,
    },
    tensors=lambda file: GGUF_TWO_NORMS if SECOND in file.tensors else {},
)
FAMILY = Family("falcon", read, tensors, defaults=DEFAULTS, spelled=SPELLED, fixed=FIXED, separator=SEPARATOR, gguf=GGUF)
