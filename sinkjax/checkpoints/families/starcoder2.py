"""StarCoder2 (Lozhkov et al. 2024): LayerNorm, rotary positions, biases everywhere, a window in all layers."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.family import Family, Separator, biases, layer_norm, optional_window, rotary, sizes
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.gguf_family import Gguf, GgufFile

TENSORS = names.LLAMA | names.modules("model.layers.{}.mlp", up="c_fc", down="c_proj")


def read(fields: Fields) -> dict[str, Any]:
    values, bias, size = sizes(fields, head_dim=None), fields.flag("use_bias"), optional_window(fields)
    norm = layer_norm(fields, "norm_epsilon") | {"gated_mlp": False, "windows": size and (size,) * values["layers"]}
    return values | rotary(fields) | norm | biases(bias, bias, bias)


def window_of_release(file: GgufFile) -> dict[str, str]:
    """Return why a file must state its window, unless it could not matter."""
    if "attention.sliding_window" in file.own or file.own.get("context_length", 0) <= 4096:
        return {}
    return {"sliding_window": "the released StarCoder2 models have one of 4096 (None for none)"}


DEFAULTS = {"tie_word_embeddings": True, "use_bias": True}
SPELLED = {"layer_norm_epsilon": "norm_epsilon"}
INERT = frozenset({"activation_function", "attention_softmax_in_fp32", "scale_attention_softmax_in_fp32", "scale_attn_weights"})
FIXED = {"mlp_type": "default", "norm_type": "layer_norm"}
SEPARATOR = Separator("<|endoftext|>", in_front=False, note="between files")
GGUF = Gguf(
    "starcoder2",
    keys={"attention.key_length": None, "attention.layer_norm_epsilon": "norm_epsilon"},
    act="gelu_pytorch_tanh",
    unstated=window_of_release,
)
FAMILY = Family(
    "starcoder2", read, TENSORS, defaults=DEFAULTS, spelled=SPELLED, inert=INERT, fixed=FIXED, separator=SEPARATOR, gguf=GGUF
)
