"""Phi-1, 1.5 and 2 (Gunasekar et al. 2023): attention and MLP in parallel behind one norm, a part of each head rotated."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.family import Family, Published, Separator, as_many_as_heads, biases, decoder, layer_norm, rotary, sizes
from sinkjax.checkpoints.fields import Fields, always
from sinkjax.checkpoints.gguf_family import Gguf, has

TENSORS = names.LLAMA | names.modules(
    final_norm="model.final_layernorm",
    o="model.layers.{}.self_attn.dense",
    q_norm="model.layers.{}.self_attn.q_layernorm",
    k_norm="model.layers.{}.self_attn.k_layernorm",
    up="model.layers.{}.mlp.fc1",
    down="model.layers.{}.mlp.fc2",
)


def read(fields: Fields) -> dict[str, Any]:
    """The config."""
    found, norm = sizes(fields, head_dim=None), layer_norm(fields, "layer_norm_eps")
    layout = {"norm_place": "parallel-shared", "gated_mlp": False, "unembed_bias": True}
    qk_norm = {"qk_norm": norm["norm"] if fields.flag("qk_layernorm") else None}
    return found | rotary(fields, found["head_dim"], partial=0.5) | norm | layout | qk_norm | biases(True, True, True)


VALUES = {"hidden_act": "gelu_new", "layer_norm_eps": 1e-5, "rope_theta": 10000.0, "initializer_range": 0.02}
VALUES |= {"tie_word_embeddings": False}

FAMILY = Family(
    "phi",
    read,
    TENSORS,
    defaults={
        "num_key_value_heads": as_many_as_heads,
        "qk_layernorm": always(False),
        "rope_theta": always(10000.0),
        "tie_word_embeddings": always(False),
    },
    separator=Separator("<|endoftext|>"),
    published={
        "phi-1": Published("microsoft/phi-1", VALUES | decoder(2048, 8192, 24, 32, 32, 51200, 2048, partial_rotary_factor=0.5)),
        "phi-1.5": Published(
            "microsoft/phi-1_5", VALUES | decoder(2048, 8192, 24, 32, 32, 51200, 2048, partial_rotary_factor=0.5)
        ),
        "phi-2": Published("microsoft/phi-2", VALUES | decoder(2560, 10240, 32, 32, 32, 51200, 2048, partial_rotary_factor=0.4)),
    },
    gguf=Gguf(
        "phi2",
        keys={"attention.key_length": None, "attention.layer_norm_epsilon": "layer_norm_eps"},
        partial=True,
        implied={"hidden_act": "gelu_new", "qk_layernorm": has("q_norm")},
    ),
)
