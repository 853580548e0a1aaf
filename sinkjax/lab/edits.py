"""Edits that several studies share and that are more than one call of sinkjax's own constructors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from sinkjax.edits.edit import Edit
from sinkjax.edits.named import edit
from sinkjax.errors import SinkjaxError
from sinkjax.lab.places import Head

Way = Literal["logits", "renormalised", "weights"]


def hide(way: Way, keys: int | None = None, queries: int | None = None, layers: Sequence[int] | None = None) -> Edit:
    """Hide keys from all other queries, or all other keys from queries, before or after the softmax (Kiya et al., footnote 8).

    Args:
        way: "logits" (minus infinity), "weights" (0 after the softmax), or "renormalised" (0, and the row rescaled to sum to 1).
        keys: Keys to hide, except from their own queries; None for all.
        queries: Queries that see only themselves; None for all.
        layers: The layers; None for all.
    """
    site, value = ("logits", -np.inf) if way == "logits" else ("weights", 0.0)
    return edit(
        site, "set", value, relation="others", renormalise=way == "renormalised", keys=keys, queries=queries, layers=layers
    )


def cut_links(rng: np.random.Generator, count: int, length: int, layers: Sequence[int] | None = None) -> Edit:
    """Hide one random key from `count` random later queries; the key is not at position `count`.

    length: number of positions.
    """
    keys = [key for key in range(length - count) if key != count]
    if not keys:
        raise SinkjaxError(f"no key of {length} positions has {count} later queries")
    key = int(rng.choice(keys))
    queries = tuple(sorted(rng.choice(np.arange(key + 1, length), count, replace=False).tolist()))
    label = f"{count} links to key {key} cut"
    return edit("logits", "set", -np.inf, queries=queries, keys=key, relation="others", label=label, layers=layers)


def hide_from_heads(key: int, heads: Sequence[Head], layers: int, count: int) -> Edit:
    """Hide a key from some heads only.

    Args:
        key: The key.
        heads: (layer, head) of each.
        layers: Number of layers of the model.
        count: Number of heads in a layer.
    """
    value = np.zeros((layers, 1, count), np.float32)  # adding 0 to a logit changes nothing
    for layer, head in heads:
        value[layer, 0, head] = -np.inf
    return edit("logits", "add", value, keys=key, relation="others", layers=sorted({layer for layer, _ in heads}))


def see_only(position: int, key: int, layers: Sequence[int] | None = None) -> Edit:
    """Let a query see only one earlier key; compare `attend_self`, where it sees only itself."""
    hidden = [number for number in range(position + 1) if number != key]
    label = f"query {position} sees key {key} alone"
    return edit("logits", "set", -np.inf, queries=position, keys=hidden, label=label, layers=layers)


def hide_behind(key: int, position: int) -> Edit:
    """Hide a key from all queries behind a position, so that a token there has no competitor and nothing before it changes."""
    label = f"key {key} hidden from queries behind {position}"
    return edit("logits", "set", -np.inf, keys=key, queries=slice(position + 1, None), label=label)
