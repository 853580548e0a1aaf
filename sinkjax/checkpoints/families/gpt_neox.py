"""GPT-NeoX (Black et al. 2022) and Pythia (Biderman et al. 2023): attention and MLP in parallel, each behind its own norm."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.family import Family, Published, Separator, biases, layer_norm, rotary, sizes
from sinkjax.checkpoints.fields import Fields, always
from sinkjax.checkpoints.gguf_family import Gguf, has

TENSORS = {
    **names.modules(
        embed="gpt_neox.embed_in",
        final_norm="gpt_neox.final_layer_norm",
        unembed="lm_head",
        attn_norm="gpt_neox.layers.{}.input_layernorm",
        o="gpt_neox.layers.{}.attention.dense",
        mlp_norm="gpt_neox.layers.{}.post_attention_layernorm",
        up="gpt_neox.layers.{}.mlp.dense_h_to_4h",
        down="gpt_neox.layers.{}.mlp.dense_4h_to_h",
    ),
    **names.fused("gpt_neox.layers.{}.attention.query_key_value", names.grouped),
}


def read(fields: Fields) -> dict[str, Any]:
    """The config."""
    found = sizes(fields, kv_heads=None, head_dim=None)
    bias = fields.flag("attention_bias")
    layout = {"norm_place": "parallel" if fields.flag("use_parallel_residual") else "pre", "gated_mlp": False}
    position = rotary(fields, found["head_dim"], partial=0.25)
    return found | position | layer_norm(fields, "layer_norm_eps") | biases(bias, bias, True) | layout


def published(name: str, width: int, mlp_width: int, layers: int, heads: int, vocab_size: int, **more: Any) -> Published:
    """A released size."""
    return Published(
        name,
        {
            "hidden_size": width,
            "intermediate_size": mlp_width,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "vocab_size": vocab_size,
            "max_position_embeddings": 2048,
            "rotary_emb_base": 10000,
            "rotary_pct": 0.25,
            "hidden_act": "gelu",
            "layer_norm_eps": 1e-5,
            "tie_word_embeddings": False,
            "initializer_range": 0.02,
            **more,
        },
    )


FAMILY = Family(
    "gpt_neox",
    read,
    TENSORS,
    defaults={"attention_bias": always(True), "use_parallel_residual": always(True), "rope_theta": always(10000.0)},
    spelled={"rotary_pct": "partial_rotary_factor", "rotary_emb_base": "rope_theta"},
    prefix="gpt_neox.",
    aliases={"embed_out.weight": "lm_head.weight"},
    buffers=("*.attention.bias", "*.attention.masked_bias"),
    separator=Separator("<|endoftext|>", in_front=False, note="after each document"),
    published={
        "pythia-14m": published("EleutherAI/pythia-14m", 128, 512, 6, 4, 50304),
        "pythia-31m": published("EleutherAI/pythia-31m", 256, 1024, 6, 8, 50304),
        "pythia-70m": published("EleutherAI/pythia-70m", 512, 2048, 6, 8, 50304),
        "pythia-160m": published("EleutherAI/pythia-160m", 768, 3072, 12, 12, 50304),
        "pythia-410m": published("EleutherAI/pythia-410m", 1024, 4096, 24, 16, 50304),
        "pythia-1b": published("EleutherAI/pythia-1b", 2048, 8192, 16, 8, 50304),
        "pythia-1.4b": published("EleutherAI/pythia-1.4b", 2048, 8192, 24, 16, 50304),
        "pythia-2.8b": published("EleutherAI/pythia-2.8b", 2560, 10240, 32, 32, 50304),
        "pythia-6.9b": published("EleutherAI/pythia-6.9b", 4096, 16384, 32, 32, 50432),
        "pythia-12b": published("EleutherAI/pythia-12b", 5120, 20480, 36, 40, 50688),
        "gpt-neox-20b": published("EleutherAI/gpt-neox-20b", 6144, 24576, 44, 64, 50432, hidden_act="gelu_fast"),
    },
    gguf=Gguf(
        "gptneox",
        keys={
            "attention.head_count_kv": None,
            "attention.key_length": None,
            "attention.layer_norm_epsilon": "layer_norm_eps",
            "use_parallel_residual": "use_parallel_residual",
        },
        partial=True,
        implied={"hidden_act": "gelu", "attention_bias": has("q_bias")},
    ),
)
