"""Phi-3 and 3.5 mini, Phi-3 medium, Phi-4 (2024): a Llama with fused projections, perhaps windows and LongRoPE."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.family import Family, Separator, as_many_as_heads, optional_window, rms_norm, rotary, sizes
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.gguf_family import Gguf, GgufFile

TENSORS = (
    names.LLAMA
    | names.fused("model.layers.{}.self_attn.qkv_proj", names.joined)
    | names.fused("model.layers.{}.mlp.gate_up_proj", names.halves, leaves=("gate", "up"))
)


def read(fields: Fields) -> dict[str, Any]:
    values, size = sizes(fields, head_dim=None), optional_window(fields)
    position = rotary(fields, values["head_dim"], kinds=("default", "longrope", "su"))
    return values | position | rms_norm(fields) | {"windows": size and (size,) * values["layers"]}


def window_of_mini(file: GgufFile) -> int | None:
    """Return the window of a file that states none: Phi-3-mini-4k's and Phi-3-medium-4k's, whose first files lacked the key."""
    return 2047 if file.own.get("block_count") in (32, 40) and file.own.get("context_length") == 4096 else None


DEFAULTS = {"num_key_value_heads": as_many_as_heads, "rope_theta": 10000.0, "tie_word_embeddings": False}
INERT = frozenset({"attention_bias", "original_max_position_embeddings"})
GGUF = Gguf(
    "phi3",
    keys={"attention.key_length": None},
    partial=True,
    implied={"sliding_window": window_of_mini},
    tensors=names.fused("blk.{}.ffn_up", names.halves, leaves=("gate", "up")),
)
FAMILY = Family("phi3", read, TENSORS, defaults=DEFAULTS, inert=INERT, separator=Separator("<|endoftext|>"), gguf=GGUF)
