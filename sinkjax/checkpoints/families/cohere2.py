"""Command R7B and Command A (Cohere, 2024 and 2025): a Cohere with windows; layers that see all keys are not rotated."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints.families import cohere
from sinkjax.checkpoints.family import Family, local_windows, rotary, rotated_locally
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.gguf_family import Gguf


def read(fields: Fields) -> dict[str, Any]:
    values = cohere.block(fields)
    sized = local_windows(fields, values["layers"])
    return values | sized | rotated_locally(rotary(fields), sized["windows"] or (None,) * values["layers"])


DEFAULTS = cohere.DEFAULTS | {"sliding_window_pattern": 4}
INERT = frozenset({"_sliding_window_pattern", "layer_switch", "use_parallel_embedding"})
FIXED = {"order_of_interleaved_layers": "local_attn_first", "position_embedding_type": "rope_gptj", "rotary_pct": 1.0}
FIXED |= dict.fromkeys(("use_embedding_sharing", "use_gated_activation", "use_parallel_block"), True)
GGUF = Gguf("cohere2", keys=cohere.GGUF_KEYS, tensors=cohere.GGUF_TENSORS)
FAMILY = Family("cohere2", read, cohere.TENSORS, defaults=DEFAULTS, inert=INERT, fixed=FIXED, gguf=GGUF)
