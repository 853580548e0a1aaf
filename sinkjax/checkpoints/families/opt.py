"""OPT (Zhang et al. 2022): LayerNorm, learned positions from row 2 on, ReLU; the 350m with norms after the sums, and a narrower
embedding."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.family import Family, Published, Separator, biases, sizes
from sinkjax.checkpoints.fields import Fields, always
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
    """The config."""
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


def published(size: str, width: int, layers: int, heads: int, **more: Any) -> Published:
    """A released size."""
    shape = {"hidden_size": width, "ffn_dim": 4 * width, "num_hidden_layers": layers, "num_attention_heads": heads}
    shape |= {"word_embed_proj_dim": width, "vocab_size": 50272, "max_position_embeddings": 2048}
    values = {"activation_function": "relu", "do_layer_norm_before": True, "initializer_range": 0.02}
    return Published(f"facebook/opt-{size}", {**shape, **values, **more})


FAMILY = Family(
    "opt",
    read,
    TENSORS,
    defaults={
        "word_embed_proj_dim": lambda fields: fields.integer("hidden_size"),
        "enable_bias": always(True),
        "layer_norm_elementwise_affine": always(True),
        "tie_word_embeddings": always(True),
    },
    inert=frozenset({"activation_dropout", "init_std", "layerdrop"}),
    fixed={"_remove_final_layer_norm": False},
    prefix="model.",
    separator=Separator("</s>", note="its tokenizer puts it in front"),
    published={
        "opt-125m": published("125m", 768, 12, 12),
        "opt-350m": published("350m", 1024, 24, 16, word_embed_proj_dim=512, do_layer_norm_before=False),
        "opt-1.3b": published("1.3b", 2048, 24, 32),
        "opt-2.7b": published("2.7b", 2560, 32, 32),
        "opt-6.7b": published("6.7b", 4096, 32, 32),
        "opt-13b": published("13b", 5120, 40, 40),
        "opt-30b": published("30b", 7168, 48, 56),
        "opt-66b": published("66b", 9216, 64, 72),
    },
)
