"""Buffers that old checkpoints store among their weights: constants of the architecture, which are checked and left out."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np

from sinkjax.checkpoints.tensors import Tensor
from sinkjax.errors import SinkjaxError


@dataclass(frozen=True)
class Buffer:
    """A stored constant.

    Attributes:
        what: What it must be, for an error.
        holds: Whether an array is that.
    """

    what: str
    holds: Callable[[np.ndarray], bool]


def _is_causal(array: np.ndarray) -> bool:
    """Return whether an array [1, 1, n, n] of any type has ones on and below its diagonal, and zeros above it."""
    n = array.shape[-1] if array.ndim else 0
    return array.size == n * n and np.array_equal(array.reshape(n, n), np.tri(n, dtype=array.dtype))


def number(what: str, low: float, high: float) -> Buffer:
    """Return a buffer of one number between two bounds."""
    return Buffer(what, lambda array: array.size == 1 and bool(low <= array.item() <= high))


MASK = Buffer("a causal mask, with 1 on and below the diagonal and 0 above it", _is_causal)
# -1e4 or -1e9, which is minus infinity in float16.
FILL = number("one number below -1000, which replaces masked scores", -np.inf, -1000)


def without_buffers(
    tensors: Mapping[str, Tensor], buffers: Mapping[str, Buffer], ignored: Collection[str], where: str
) -> dict[str, Tensor]:
    """Return the tensors that are not buffers.

    Args:
        tensors: Tensor name -> tensor.
        buffers: Pattern of names -> what such a tensor must be.
        ignored: Patterns of tensors that are left out unseen.
        where: The file, for messages.

    Raises:
        SinkjaxError: A buffer is something else, so the model computes something else.
    """
    weights = {}
    for name, tensor in tensors.items():
        known = next((buffer for pattern, buffer in buffers.items() if fnmatch.fnmatchcase(name, pattern)), None)
        if known is None:
            weights[name] = tensor
        elif not any(fnmatch.fnmatchcase(name, pattern) for pattern in ignored) and not known.holds(tensor.array()):
            raise SinkjaxError(f"{name} of {where} must be {known.what}; with another, the model would compute something else")
    return weights
