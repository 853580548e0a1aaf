"""Gemma 2 (2024): a Gemma with norms around attention and MLP, soft caps, and a window in every second layer."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.families.gemma import DEFAULTS, common
from sinkjax.checkpoints.family import Family, Separator, rotary, window, windows
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.gguf_family import Gguf, GgufFile
from sinkjax.model.config import Caps

TENSORS = {
    **names.LLAMA,
    **names.modules("model.layers.{}", attn_out_norm="post_attention_layernorm", mlp_norm="pre_feedforward_layernorm"),
    **names.modules("model.layers.{}", mlp_out_norm="post_feedforward_layernorm"),
}


def sandwich(fields: Fields) -> dict[str, Any]:
    """Read the fields that Gemma 2 and 3 share."""
    values, scalar = common(fields, "hidden_activation"), fields.number("query_pre_attn_scalar")
    caps = (fields.optional_number(f"{which}_logit_softcapping") for which in ("attn", "final"))
    scale = None if scalar == values["head_dim"] else scalar**-0.5
    return values | {"norm_place": "sandwich", "caps": Caps(*caps), "score_scale": scale}


def read(fields: Fields) -> dict[str, Any]:
    values = sandwich(fields)
    return values | rotary(fields) | windows(fields, window(fields), lambda layer: layer % 2 == 0, values["layers"])


FIXED = {"use_bidirectional_attention": False, "hidden_act": "gelu_pytorch_tanh"}


def query_scalar(file: GgufFile) -> float:
    """Return the number whose root divides the scores; a GGUF has no key for it.

    As in llama.cpp, it is the width divided by the heads in the two 27B models, identified by their number of layers, and a
    head's width in all others.
    """
    if file.number("block_count") in (46, 62):
        return file.number("embedding_length") / file.number("attention.head_count")
    return file.number("attention.key_length")


IMPLIED = {"hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": query_scalar}


FAMILY = Family(
    "gemma2",
    read,
    TENSORS,
    defaults=DEFAULTS | {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},  # null: no cap
    inert=frozenset({"sliding_window_size"}),
    fixed=FIXED,
    separator=Separator("<bos>", in_front=True, note="before each document; its tokenizer adds it"),
    gguf=Gguf(
        "gemma2",
        act=None,
        keys={"attn_logit_softcapping": "attn_logit_softcapping", "final_logit_softcapping": "final_logit_softcapping"},
        implied=IMPLIED | {"sliding_window": 4096},
        offset_norms=True,
    ),
)
