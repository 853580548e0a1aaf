"""Ministral 8B (Mistral AI, 2024): a Mistral with windows in some of its layers."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.family import Family, even_head_dim, rms_norm, rotary, sizes, window, windows
from sinkjax.checkpoints.fields import Fields


def read(fields: Fields) -> dict[str, Any]:
    values, size = sizes(fields), window(fields)
    return values | rotary(fields) | rms_norm(fields) | windows(fields, size, lambda layer: True, values["layers"])


FAMILY = Family("ministral", read, names.LLAMA, defaults={"head_dim": even_head_dim, "tie_word_embeddings": False})
