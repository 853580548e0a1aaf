"""StableLM (Stability AI, 2023 and 2024): LayerNorm, a part of each head rotated; the 12B parallel, with norms by head."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.family import Family, Separator, biases, layer_norm, rotary, sizes
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.gguf_family import Gguf
from sinkjax.model.norms import EachHead, LayerNorm

TENSORS = names.LLAMA | names.modules("model.layers.{}.self_attn", q_norm="q_layernorm.norms.{}", k_norm="k_layernorm.norms.{}")


def read(fields: Fields) -> dict[str, Any]:
    values, norm = sizes(fields, head_dim=None), layer_norm(fields, "layer_norm_eps")
    each = EachHead(LayerNorm(norm["norm"].eps, bias=False)) if fields.flag("qk_layernorm") else None
    layout = {"norm_place": "parallel-shared" if fields.flag("use_parallel_residual") else "pre", "qk_norm": each}
    position = rotary(fields, values["head_dim"], partial=0.25)
    return values | position | norm | layout | biases(fields.flag("use_qkv_bias"), False, False)


DEFAULTS = {"qk_layernorm": False, "use_parallel_residual": False, "use_qkv_bias": False, "rope_theta": 10000.0}
GGUF = Gguf(
    "stablelm",
    keys={
        "attention.key_length": None,
        "attention.layer_norm_epsilon": "layer_norm_eps",
        "use_parallel_residual": "use_parallel_residual",
    },
    partial=True,
)
FAMILY = Family("stablelm", read, TENSORS, defaults=DEFAULTS, separator=Separator("<|endoftext|>"), gguf=GGUF)
