"""OLMo 3 (2025): an OLMo 2 with windows in three of four layers, and a scaled rotation in the others only."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints.families import gemma3, olmo2
from sinkjax.checkpoints.family import COMMON, Family, window, windows
from sinkjax.checkpoints.fields import Fields


def read(fields: Fields) -> dict[str, Any]:
    values = olmo2.block(fields)
    sized = windows(fields, window(fields), lambda layer: (layer + 1) % 4 != 0, values["layers"])
    return values | sized | gemma3.positions(fields, sized["windows"] or (None,) * values["layers"], local="rope_theta")


FAMILY = Family("olmo3", read, olmo2.TENSORS, defaults=COMMON)
