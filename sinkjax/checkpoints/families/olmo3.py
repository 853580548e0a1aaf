"""OLMo 3 (2025): an OLMo 2 with windows in three of four layers, and a scaled rotation in the others only."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints.families import exaone4, gemma3, olmo2
from sinkjax.checkpoints.family import COMMON, Family, window, windows
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.gguf_family import Gguf

LOCAL = "rope_local_base_freq"  # the base in layers with a window, which only GGUF files state beside the other one


def read(fields: Fields) -> dict[str, Any]:
    values = olmo2.block(fields)
    sized = windows(fields, window(fields), lambda layer: (layer + 1) % 4 != 0, values["layers"])
    base = LOCAL if fields.stated(LOCAL) else "rope_theta"
    return values | sized | gemma3.positions(fields, sized["windows"] or (None,) * values["layers"], local=base)


GGUF = Gguf(
    "olmo2",
    keys={"attention.key_length": None, "attention.sliding_window_pattern": None, "rope.scaling.attn_factor": None}
    | {"rope.freq_base_swa": LOCAL},
    implied={"layer_types": exaone4.stored_kinds},
    suits=lambda file: bool(file.own.get("attention.sliding_window")),
)
FAMILY = Family("olmo3", read, olmo2.TENSORS, defaults=COMMON, gguf=GGUF)
