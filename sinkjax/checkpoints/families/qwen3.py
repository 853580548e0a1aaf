"""Qwen3 (2025): a Llama with a norm of each head's queries and keys, and Qwen's gated attention (Qiu et al. 2025)."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.families.qwen2 import late_windows
from sinkjax.checkpoints.family import Family, Separator, biases, rms_norm, rotary, sizes
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.gguf_family import Gguf
from sinkjax.config_files.checks import refuse
from sinkjax.model.config import Config
from sinkjax.model.heads import ElementGate, Gate, HeadGate

TENSORS = names.LLAMA | names.modules("model.layers.{}.self_attn", q_norm="q_norm", k_norm="k_norm")
GATES: dict[str, Gate] = {"headwise_attn_output_gate": HeadGate(), "elementwise_attn_output_gate": ElementGate()}


def tensors(config: Config) -> names.Table:
    """Return the tensor names; gates are computed by the projection of queries."""
    if config.gate is None:
        return TENSORS
    gate = "head_gate" if isinstance(config.gate, HeadGate) else "element_gate"
    return TENSORS | names.fused("model.layers.{}.self_attn.q_proj", names.gated_queries, leaves=("q", gate))


def attention(fields: Fields) -> dict[str, Any]:
    """Read the fields that Qwen3 and its mixtures of experts share."""
    norm, bias = rms_norm(fields), fields.flag("attention_bias")
    return norm | {"qk_norm": norm["norm"]} | biases(bias, bias, False)


def read(fields: Fields) -> dict[str, Any]:
    values, parts = sizes(fields), attention(fields)
    parts |= {"qk_norm": parts["qk_norm"] if stated_flag(fields, "use_qk_norm", True) else None, "gate": gate(fields)}
    return values | rotary(fields) | parts | late_windows(fields, values["layers"])


def gate(fields: Fields) -> Gate | None:
    """Read the gate on the heads' outputs; it comes without biases."""
    chosen = [each for key, each in GATES.items() if stated_flag(fields, key, False)]
    refuse(len(chosen) > 1, f"{fields.where} has both {' and '.join(map(repr, GATES))}, of which a model has one")
    if chosen:
        fields.fixed("attention_bias", False)
    return chosen[0] if chosen else None


def stated_flag(fields: Fields, key: str, absent: bool) -> bool:
    """Read a flag that only files of gated attention state. absent: its meaning elsewhere."""
    fields.read.add(key)
    return fields.flag(key) if fields.stated(key) else absent


DEFAULTS = {"use_sliding_window": False, "attention_bias": False}
SEPARATOR = Separator("<|endoftext|>", in_front=False, note="after each document; it has no BOS")
FAMILY = Family("qwen3", read, tensors, fixed={"qkv_bias": False}, defaults=DEFAULTS, separator=SEPARATOR, gguf=Gguf("qwen3"))
