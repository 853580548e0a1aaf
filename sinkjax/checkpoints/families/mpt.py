"""MPT (MosaicML, 2023): LayerNorm without bias, ALiBi, no biases, perhaps clipped queries, keys and values."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.family import Family, Separator, layer_norm, sizes
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.gguf_family import EVEN_HEADS, Gguf, GgufFile
from sinkjax.checkpoints.hf_config import INERT
from sinkjax.model.positions import PowerAlibi

TENSORS = {
    **names.modules("transformer", embed="wte", final_norm="norm_f"),
    **names.modules("transformer.blocks.{}", attn_norm="norm_1", mlp_norm="norm_2"),
    **names.modules("transformer.blocks.{}", o="attn.out_proj", up="ffn.up_proj", down="ffn.down_proj"),
    **names.modules(unembed="lm_head"),
    **names.fused("transformer.blocks.{}.attn.Wqkv", names.joined),
}


def read(fields: Fields) -> dict[str, Any]:
    found = sizes(
        fields, layers="n_layers", width="d_model", heads="n_heads", kv_heads=None, head_dim=None, mlp_width=None, activation=None
    )
    shape = {"mlp_width": fields.integer("expansion_ratio") * found["width"], "activation": "gelu", "gated_mlp": False}
    context = {"context": fields.integer("max_seq_len")}
    return found | shape | context | attention(fields) | layer_norm(fields, "layer_norm_epsilon", bias=False)


def attention(fields: Fields) -> dict[str, Any]:
    """Read the fields of the table `attn_config`."""
    inner = fields.inner("attn_config", {"alibi_bias_max": 8})
    usual = {"attn_type": "multihead_attention", "alibi": True}
    for key in (*usual, "prefix_lm", "qk_ln", "attn_uses_sequence_id", "is_encoder_decoder"):
        inner.fixed(key, usual.get(key, False))
    clip, scale = inner.optional_number("clip_qkv", low=0) or None, inner.optional_number("softmax_scale")
    position = PowerAlibi(float(inner.integer("alibi_bias_max")))
    inert = {f"attn_config.{key}" for key in INERT | {"attn_impl", "model_type"}}
    inner.finish(inert, prefix="attn_config.")
    return {"position": position, "qkv_clip": clip, "score_scale": scale}


def gguf_attention(file: GgufFile) -> dict[str, Any]:
    """Return the table `attn_config` of a GGUF, where a maximum bias of 0 means no ALiBi."""
    largest = file.number("attention.max_alibi_bias")
    whole = int(largest) if largest == largest // 1 else largest
    return {"alibi": largest > 0, "alibi_bias_max": whole or None, "clip_qkv": file.own.get("attention.clamp_kqv")}


FAMILY = Family(
    "mpt",
    read,
    TENSORS,
    defaults={"layer_norm_epsilon": 1e-5, "tie_word_embeddings": True},
    inert=frozenset({"emb_pdrop", "init_config", "init_device", "is_hf_config", "learned_pos_emb", "norm_type", "verbose"}),
    fixed={"embedding_fraction": 1.0, "logit_scale": None, "no_bias": True},
    separator=Separator("<|endoftext|>", in_front=False, note="after each document"),
    gguf=Gguf(
        "mpt",
        act=None,
        keys=EVEN_HEADS
        | dict.fromkeys(("feed_forward_length", "attention.clamp_kqv", "attention.max_alibi_bias"))
        | {"block_count": "n_layers", "context_length": "max_seq_len", "embedding_length": "d_model"}
        | {"attention.head_count": "n_heads", "attention.layer_norm_epsilon": "layer_norm_epsilon"},
        implied={
            "expansion_ratio": lambda file: int(file.number("feed_forward_length") // file.number("embedding_length")),
            "attn_config": gguf_attention,
        },
    ),
)
