"""Which keys a query may see."""

from __future__ import annotations

from typing import Any

import numpy as np


def visible_keys(rows_Q: Any, T: int, window: Any, prefix: int | None, lengths_B: Any) -> Any:
    """Whether the query at each of `rows_Q` sees each of T keys: bool [B or 1, Q, T]; numpy or JAX, as the arguments are.

    Seen are the last `window` keys, the query's own included (None: all earlier ones), and whatever lies in the prefix: its first
    `prefix` positions see each other both ways, as far as the prompt goes, and every later query sees them beyond any window.
    """
    keys = np.arange(T)
    back_QT = rows_Q[:, None] - keys
    seen_QT = back_QT >= 0 if window is None else (back_QT >= 0) & (back_QT < window)
    if prefix is None:
        return seen_QT[None]
    return seen_QT[None] | in_prefix(T, prefix, lengths_B)[:, None]


def in_prefix(T: int, prefix: int | None, lengths_B: Any) -> Any:
    """Which positions are in the prefix and in the prompt: bool [B, T]."""
    return np.arange(T) < lengths_B[:, None].clip(max=prefix or 0)
