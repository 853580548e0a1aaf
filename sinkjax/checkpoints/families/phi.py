"""Phi-1, 1.5 and 2 (Gunasekar et al. 2023): attention and MLP in parallel behind one norm, a part of each head rotated."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.family import Family, Separator, as_many_as_heads, biases, layer_norm, rotary, sizes
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.gguf_family import Gguf

TENSORS = {
    **names.LLAMA,
    **names.modules("model", final_norm="final_layernorm"),
    **names.modules("model.layers.{}.self_attn", o="dense", q_norm="q_layernorm", k_norm="k_layernorm"),
    **names.modules("model.layers.{}.mlp", up="fc1", down="fc2"),
}


def read(fields: Fields) -> dict[str, Any]:
    values, norm = sizes(fields, head_dim=None), layer_norm(fields, "layer_norm_eps")
    layout = {"norm_place": "parallel-shared", "gated_mlp": False, "unembed_bias": True}
    qk_norm = {"qk_norm": norm["norm"] if fields.flag("qk_layernorm") else None}
    return values | rotary(fields, values["head_dim"], partial=0.5) | norm | layout | qk_norm | biases(True, True, True)


DEFAULTS = {"num_key_value_heads": as_many_as_heads, "qk_layernorm": False, "rope_theta": 10000.0, "tie_word_embeddings": False}
GGUF = Gguf(
    "phi2", keys={"attention.key_length": None, "attention.layer_norm_epsilon": "layer_norm_eps"}, partial=True, act="gelu_new"
)
FAMILY = Family("phi", read, TENSORS, defaults=DEFAULTS, separator=Separator("<|endoftext|>"), gguf=GGUF)
