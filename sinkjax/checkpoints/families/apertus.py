"""Apertus (Swiss AI, 2025): a Llama with norms of each head's queries and keys, and xIELU in an MLP without a gate."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.buffers import number
from sinkjax.checkpoints.family import ACTIVATIONS, COMMON, Family, biases, rms_norm, rotary, sizes
from sinkjax.checkpoints.fields import Fields
from sinkjax.model.xielu import BETA, EPS, XIELU

TENSORS = {
    **names.LLAMA,
    **names.modules("model.layers.{}", attn_norm="attention_layernorm", mlp_norm="feedforward_layernorm"),
    **names.modules("model.layers.{}.self_attn", q_norm="q_norm", k_norm="k_norm"),
    "xielu_p": "model.layers.{}.mlp.act_fn.alpha_p",
    "xielu_n": "model.layers.{}.mlp.act_fn.alpha_n",
}


def read(fields: Fields) -> dict[str, Any]:
    values, norm, bias = sizes(fields, head_dim=None, activation=None), rms_norm(fields), fields.flag("attention_bias")
    name = fields.choice("hidden_act", ("xielu", *ACTIVATIONS), "hidden_act")
    mlp = {"activation": XIELU() if name == "xielu" else ACTIVATIONS[name], "gated_mlp": False}
    fields.get("rope_scaling")  # transformers' class would scale by llama3
    return values | rotary(fields) | norm | mlp | {"qk_norm": norm["norm"]} | biases(bias, bias, False)


BUFFERS = {
    "*.mlp.act_fn.beta": number(f"{BETA}, the only slope supported", BETA, BETA),
    "*.mlp.act_fn.eps": number(f"{-EPS}, the only bound supported", -1.01 * EPS, -0.99 * EPS),  # rounded to 16 bits
}
FAMILY = Family("apertus", read, TENSORS, defaults=COMMON, fixed={"post_norm": False, "qk_norm": True}, buffers=BUFFERS)
