"""StarCoder2 (Lozhkov et al. 2024): LayerNorm, rotary positions, biases everywhere, a window in all layers."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.family import Family, Published, Separator, biases, decoder, layer_norm, optional_window, rotary, sizes
from sinkjax.checkpoints.fields import Fields, always
from sinkjax.checkpoints.gguf_family import Gguf, has

TENSORS = names.LLAMA | names.modules(up="model.layers.{}.mlp.c_fc", down="model.layers.{}.mlp.c_proj")


def read(fields: Fields) -> dict[str, Any]:
    """The config."""
    found, bias, size = sizes(fields, head_dim=None), fields.flag("use_bias"), optional_window(fields)
    norm = layer_norm(fields, "norm_epsilon") | {"gated_mlp": False, "windows": size and (size,) * found["layers"]}
    return found | rotary(fields) | norm | biases(bias, bias, bias)


def published(size: str, *shape: int, theta: float) -> Published:
    """A released size."""
    values = {"hidden_act": "gelu_pytorch_tanh", "norm_epsilon": 1e-5, "use_bias": True, "initializer_range": 0.018042}
    more: dict[str, Any] = {"rope_theta": theta, "sliding_window": 4096}
    return Published(f"bigcode/starcoder2-{size}", values | decoder(*shape, 49152, 16384, **more))


FAMILY = Family(
    "starcoder2",
    read,
    TENSORS,
    defaults={"tie_word_embeddings": always(True), "use_bias": always(True)},
    spelled={"layer_norm_epsilon": "norm_epsilon"},
    inert=frozenset(
        {"activation_function", "attention_softmax_in_fp32", "scale_attention_softmax_in_fp32", "scale_attn_weights"}
    ),
    fixed={"mlp_type": "default", "norm_type": "layer_norm"},
    separator=Separator("<|endoftext|>", in_front=False, note="between files"),
    published={
        "starcoder2-3b": published("3b", 3072, 12288, 30, 24, 2, theta=999999.4420358813),
        "starcoder2-7b": published("7b", 4608, 18432, 32, 36, 4, theta=1000000.0),
        "starcoder2-15b": published("15b", 6144, 24576, 40, 48, 4, theta=100000.0),
    },
    gguf=Gguf(
        "starcoder2",
        keys={"attention.key_length": None, "attention.layer_norm_epsilon": "norm_epsilon"},
        implied={"hidden_act": "gelu_pytorch_tanh", "use_bias": has("q_bias")},
    ),
)
