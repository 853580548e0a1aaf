"""Edits that several studies share and that are more than one call of sinkjax's own constructors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sinkjax.edits.edit import Edit
from sinkjax.edits.named import edit
from sinkjax.errors import SinkjaxError


def cut_links(rng: np.random.Generator, count: int, length: int, layers: Sequence[int] | None = None) -> Edit:
    """Hide one random key from `count` random later queries; the key is neither the first, whose sink is read, nor at `count`.

    length: number of positions.
    """
    keys = [key for key in range(1, length - count) if key != count]
    if not keys:
        raise SinkjaxError(f"no key of {length} positions has {count} later queries")
    key = int(rng.choice(keys))
    queries = tuple(sorted(rng.choice(np.arange(key + 1, length), count, replace=False).tolist()))
    label = f"{count} links to key {key} cut"
    return edit("logits", "set", -np.inf, queries=queries, keys=key, relation="others", label=label, layers=layers)


def see_only(position: int, key: int, layers: Sequence[int] | None = None) -> Edit:
    """Let a query see only one earlier key; compare `attend_self`, where it sees only itself."""
    hidden = [number for number in range(position + 1) if number != key]
    label = f"query {position} sees key {key} alone"
    return edit("logits", "set", -np.inf, queries=position, keys=hidden, label=label, layers=layers)


def hide_behind(key: int, position: int) -> Edit:
    """Hide a key from all queries behind a position, so that a token there has no competitor and nothing before it changes."""
    label = f"key {key} hidden from queries behind {position}"
    return edit("logits", "set", -np.inf, keys=key, queries=slice(position + 1, None), label=label)
