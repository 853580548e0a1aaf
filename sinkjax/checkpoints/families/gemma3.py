"""Gemma 3's language models (2025): a Gemma 2 with norms of queries and keys, and two rotary bases by kind of layer."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.families import gemma2
from sinkjax.checkpoints.families.gemma import DEFAULTS
from sinkjax.checkpoints.family import Family, Separator, local_windows
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.gguf_family import Gguf
from sinkjax.checkpoints.hf_rope import rope_of
from sinkjax.model.rotary import LayerRopes

TENSORS = gemma2.TENSORS | names.modules("model.layers.{}.self_attn", q_norm="q_norm", k_norm="k_norm")


def read(fields: Fields) -> dict[str, Any]:
    values = gemma2.sandwich(fields)
    sized = local_windows(fields, values["layers"])
    seen = sized["windows"] or (None,) * values["layers"]
    return values | sized | positions(fields, seen) | {"qk_norm": values["norm"]}


def positions(fields: Fields, seen: tuple[int | None, ...], local: str = "rope_local_base_freq") -> dict[str, Any]:
    """Read the rotary positions of global layers and of layers with a window, in either spelling.

    local: key of the base of layers with a window.
    """
    context, table = fields.integer("max_position_embeddings"), fields.table("rope_scaling")
    if "full_attention" in table or "sliding_attention" in table:
        tables = [dict(table.get(f"{kind}_attention") or {}) for kind in ("full", "sliding")]
        bases = [
            Fields({"rope_theta": entry.pop("rope_theta", None)}, fields.where, in_table=True).number("rope_theta")
            for entry in tables
        ]
    else:
        tables, bases = [table, {}], [fields.number("rope_theta"), fields.number(local)]
    kinds = tuple(rope_of(entry, base, context, fields)[0] for entry, base in zip(tables, bases, strict=True))
    return {"position": LayerRopes(kinds, tuple(0 if size is None else 1 for size in seen)), "context": context}


FAMILY = Family(
    "gemma3_text",
    read,
    TENSORS,
    defaults=DEFAULTS | {"sliding_window_pattern": 6, "rope_theta": 1e6, "rope_local_base_freq": 10000.0},
    inert=frozenset({"_sliding_window_pattern"}),
    fixed=gemma2.FIXED,
    separator=Separator("<bos>", in_front=True, note="before each document; its tokenizer adds it"),
    gguf=Gguf(
        "gemma3",
        act=None,
        keys={"final_logit_softcapping": "final_logit_softcapping", "rope.freq_base_swa": "rope_local_base_freq"},
        implied=gemma2.IMPLIED | {"sliding_window": None},
        offset_norms=True,
    ),
)
