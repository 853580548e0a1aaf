"""EXAONE 3 and 3.5 (LG AI Research, 2024): a Llama under GPT-2's names."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.family import Family, biases, even_head_dim, rms_norm, rotary, sizes
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.gguf_family import Gguf

TENSORS = {
    **names.modules("transformer", embed="wte", final_norm="ln_f"),
    **names.modules("transformer.h.{}", attn_norm="ln_1", mlp_norm="ln_2"),
    **names.modules("transformer.h.{}.attn.attention", q="q_proj", k="k_proj", v="v_proj", o="out_proj"),
    **names.modules("transformer.h.{}.mlp", gate="c_fc_0", up="c_fc_1", down="c_proj"),
    **names.modules(unembed="lm_head"),
}


def read(fields: Fields) -> dict[str, Any]:
    bias = fields.flag("attention_bias")
    return sizes(fields) | rotary(fields) | rms_norm(fields) | biases(bias, bias, fields.flag("mlp_bias"))


SPELLED = {"num_layers": "num_hidden_layers", "layer_norm_epsilon": "rms_norm_eps", "activation_function": "hidden_act"}
DEFAULTS = {"head_dim": even_head_dim, "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False}
INERT = frozenset({"embed_dropout"})
FAMILY = Family(
    "exaone", read, TENSORS, defaults=DEFAULTS, spelled=SPELLED, inert=INERT, layouts=(names.LLAMA,), gguf=Gguf("exaone")
)
