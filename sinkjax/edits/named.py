"""The named edits: each is a line over `sinkjax.edit`, with its meaning and its source."""

from __future__ import annotations

from typing import Any

import numpy as np

from sinkjax.edits.edit import Edit, compose, describe, edit
from sinkjax.edits.site import Site
from sinkjax.edits.term import Select
from sinkjax.errors import SinkjaxError


def mask_key(key: Select, layers: Select = None, heads: Select = None) -> Edit:
    """LOGITS: -inf towards `key` for every query but `key` itself, so that no row is emptied (Kiya et al. 2026, Fig. 4)."""
    name = describe("mask_key", key=key, layers=layers, heads=heads)
    return edit(Site.LOGITS, "set", -np.inf, keys=key, layers=layers, heads=heads, relation="others", label=name)


def attend_self(position: Select, layers: Select = None, heads: Select = None) -> Edit:
    """LOGITS: the query at `position` sees only itself: -inf on all its other keys (Kiya et al. 2026, Fig. 5; Li et al. 2026)."""
    name = describe("attend_self", position=position, layers=layers, heads=heads)
    return edit(Site.LOGITS, "set", -np.inf, queries=position, layers=layers, heads=heads, relation="others", label=name)


def add_logit(key: Select, value: Any, layers: Select = None, heads: Select = None) -> Edit:
    """LOGITS: `value` added to every query's score of `key`, its own included. Neutral at 0."""
    name = describe("add_logit", key=key, value=value, layers=layers, heads=heads)
    return edit(Site.LOGITS, "add", value, keys=key, layers=layers, heads=heads, label=name)


def swap_embeddings(i: Any, j: Any) -> Edit:
    """EMBED: the input rows at positions `i` and `j` change places; the targets of the loss stay (Kiya et al. 2026, Fig. 2).

    i, j: int, or int [B] where the positions differ per prompt. Neutral at i == j.
    """
    for position in (i, j):
        if np.asarray(position).dtype.kind not in "iu" or np.asarray(position).ndim > 1:
            raise SinkjaxError(f"swap_embeddings takes int positions or one per prompt, not {position!r}")
    if np.ndim(i) and np.ndim(j) and len(i) != len(j):
        raise SinkjaxError(f"swap_embeddings takes one position per prompt on both sides, not {len(i)} and {len(j)}")
    value = np.stack(np.broadcast_arrays(i, j), axis=-1)
    return edit(Site.EMBED, "swap", value, label=describe("swap_embeddings", i=i, j=j))


def set_positions(query: Any = None, key: Any = None, layers: Select = None) -> Edit:
    """POSITION: the rotary indices of queries and of keys become these; causality stays by array index.

    query, key: None (left alone), int, int [T] or int [B, T].
    """
    return _positions("set", query, key, layers)


def shift_positions(query: Any = None, key: Any = None, layers: Select = None) -> Edit:
    """POSITION: these are added to the rotary indices of queries and of keys (Kiya et al. 2026, section 3). Neutral at 0.

    query, key: None (left alone), int, int [T] or int [B, T].
    """
    return _positions("shift", query, key, layers)


def _positions(op: str, query: Any, key: Any, layers: Select) -> Edit:
    everywhere = slice(None)
    parts = []
    if query is not None:
        parts.append(edit(Site.POSITION, op, query, queries=everywhere, layers=layers))
    if key is not None:
        parts.append(edit(Site.POSITION, op, key, keys=everywhere, layers=layers))
    if not parts:
        raise SinkjaxError(f"{op}_positions needs query=, key= or both")
    return compose(*parts, label=describe(f"{op}_positions", query=query, key=key, layers=layers))


def scale_head_output(
    position: Select, factor: Any, centre: str | None = None, layers: Select = None, heads: Select = None
) -> Edit:
    """HEAD_OUT: o becomes `factor` o, or, centred, mu + factor (o - mu) (variance amplification, Li et al. 2026, section D.2).

    centre: None (the control that scales the norm), "dims" (mu over the head's dims) or "positions" (mu over positions <= i).
    Neutral at 1.
    """
    name = describe("scale_head_output", position=position, factor=factor, centre=centre, layers=layers, heads=heads)
    return edit(Site.HEAD_OUT, "scale", factor, queries=position, layers=layers, heads=heads, centre=centre, label=name)


def set_residual(position: Select, value: Any, dims: Select = None, layers: Select = None) -> Edit:
    """RESID: after block l, the chosen dims at `position` become `value` (Sun et al. 2024, Table 3: massive activations set)."""
    name = describe("set_residual", position=position, value=value, dims=dims, layers=layers)
    return edit(Site.RESID, "set", value, queries=position, dims=dims, layers=layers, label=name)


def drop_mlp(position: Select, layers: Select = None) -> Edit:
    """MLP_OUT: scaled by 0 at `position`, so the token skips the MLP (Queipo-de-Llano et al. 2026: BOS, at the onset layer)."""
    name = describe("drop_mlp", position=position, layers=layers)
    return edit(Site.MLP_OUT, "scale", 0.0, queries=position, layers=layers, label=name)
