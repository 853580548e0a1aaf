"""gpt-oss (OpenAI, 2025): a learned sink logit for each head, and a mixture of experts with a clamped gate, biases everywhere."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.family import Family, biases, rms_norm, rotary, sizes, window, windows
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.gguf_family import Gguf
from sinkjax.checkpoints.names import LeafPart
from sinkjax.model.experts import ClampedSwiGLU, Experts
from sinkjax.model.normalisers import SinkLogit

PACKING = "quantization_config"
EXPERTS = "model.layers.{}.mlp.experts"
TENSORS = {
    **names.LLAMA,
    **names.modules("model.layers.{}.mlp", router="router"),
    **names.fused(f"{EXPERTS}.gate_up_proj", names.alternating, ("gate", "up"), True, ("", "_bias"), stacked=True),
    "down": LeafPart(f"{EXPERTS}.down_proj", inputs_first=True, stacked=True),
    "down_bias": LeafPart(f"{EXPERTS}.down_proj_bias", stacked=True),
    "sink": "model.layers.{}.self_attn.sinks",
}
# As OpenAI published them: the experts' matrices in MXFP4, each [outputs, inputs] once it is unpacked.
PACKED = {
    **names.fused(f"{EXPERTS}.{{}}.gate_up_proj", names.alternating, ("gate", "up"), ends=("", "")),
    **{leaf: TENSORS[leaf] for leaf in ("gate_bias", "up_bias")},
    "down": f"{EXPERTS}.{{}}.down_proj",
}


def read(fields: Fields) -> dict[str, Any]:
    values, bias = sizes(fields, activation=None), fields.flag("attention_bias")
    fields.fixed("hidden_act", "silu")
    packing(fields)
    fields.get("rope_scaling")  # transformers' class would scale by YaRN
    return {
        **values,
        **rotary(fields),
        **rms_norm(fields),
        **biases(bias, bias, True),
        **windows(fields, window(fields), lambda layer: layer % 2 == 0, values["layers"]),
        "activation": ClampedSwiGLU(fields.number("swiglu_alpha", low=0), fields.number("swiglu_limit")),
        "experts": Experts(fields.integer("num_local_experts"), fields.integer("num_experts_per_tok"), bias=True),
        "normaliser": SinkLogit(),
    }


def packing(fields: Fields) -> None:
    """Accept MXFP4, which `folder` unpacks; other kinds of quantisation stay unread, and are refused."""
    table = fields.values.get(PACKING)
    if isinstance(table, dict) and table.get("quant_method") == "mxfp4" and PACKING not in fields.ignored:
        inner = fields.inner(PACKING)
        inner.read |= {"quant_method", "modules_to_not_convert", "dequantize"}
        inner.finish(prefix=f"{PACKING}.")


DEFAULTS = {"swiglu_alpha": 1.702, "swiglu_limit": 7.0, "attention_bias": True}
SPELLED = {"experts_per_token": "num_experts_per_tok"}
INERT = frozenset({"initial_context_length"})
GGUF = Gguf(
    "gpt-oss",
    keys={"expert_count": "num_local_experts", "expert_used_count": "num_experts_per_tok"}
    | {"expert_feed_forward_length": "intermediate_size", "feed_forward_length": None},
    rope={"truncate": False},
    tensors=names.modules("blk.{}", mlp_norm="post_attention_norm"),
)
FAMILY = Family("gpt_oss", read, TENSORS, defaults=DEFAULTS, spelled=SPELLED, inert=INERT, layouts=(PACKED,), gguf=GGUF)
