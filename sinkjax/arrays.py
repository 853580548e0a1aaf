"""What callers pass as arrays and indices: anything else is refused in one sentence before a library sees it."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from sinkjax.errors import SinkjaxError


def as_array(what: str, value: Any) -> Any:
    """`value` as an array: a JAX array, traced or not, as it is, all else through numpy. Errors: rows of different lengths."""
    if isinstance(value, jax.Array):
        return value
    try:
        return np.asarray(value)
    except ValueError:
        raise SinkjaxError(f"{what} must be an array, but its rows have different lengths") from None


def as_indices(what: str, value: Any) -> tuple[int, ...]:
    """One int or a sequence of ints as a tuple; negative ones, booleans, fractions and emptiness are refused."""
    entries = np.asarray(as_array(f"a {what} selector", value))
    if entries.size == 0:
        raise SinkjaxError(f"an empty {what} selector selects nothing")
    if entries.dtype.kind not in "iu" or entries.ndim > 1:
        raise SinkjaxError(f"a {what} selector must be an int, a sequence of ints, a slice or None, not {value!r}")
    if entries.min() < 0:
        raise SinkjaxError(f"{what} {entries.min()} is negative; layers, heads, positions and dims count from 0")
    return tuple(int(entry) for entry in entries.reshape(-1))
