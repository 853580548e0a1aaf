"""Ministral 3 (Mistral AI, 2025): a Mistral whose queries grow with their position beyond the original context."""

from __future__ import annotations

import dataclasses
from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.family import Family, optional_window, rms_norm, sizes
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.hf_rope import rope_of
from sinkjax.model.rotary import QueryGrowth


def read(fields: Fields) -> dict[str, Any]:
    fields.get("rope_scaling")  # transformers' class would scale by YaRN
    values, size, table = sizes(fields), optional_window(fields), fields.table("rope_scaling")
    nested = Fields(table, f"rope_scaling of {fields.where}", in_table=True)
    growth = QueryGrowth(nested.number("llama_4_scaling_beta", low=0), nested.integer("original_max_position_embeddings"))
    rest = {key: value for key, value in table.items() if key not in ("llama_4_scaling_beta", "max_position_embeddings")}
    rope, context = rope_of(rest, fields.number("rope_theta"), fields.integer("max_position_embeddings"), fields)
    position = {"position": dataclasses.replace(rope, growth=growth), "context": context}
    return values | position | rms_norm(fields) | {"windows": size and (size,) * values["layers"]}


FAMILY = Family("ministral3", read, names.LLAMA, defaults={"tie_word_embeddings": False})
