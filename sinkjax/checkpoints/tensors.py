"""Tensors as checkpoint files hold them: a name, a shape and raw bytes that become numbers only when asked."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np

from sinkjax.errors import SinkjaxError


@dataclass(frozen=True, eq=False)
class Tensor:
    """One stored tensor.

    shape: outputs first, inputs last, as Hugging Face writes linear layers. raw: uint8, a view of the mapped file, or of
    an array. decode: raw -> the numbers, in any shape with the right order; cheap for plain types, de-quantising for others.
    stored: the name of the type in the file ("bfloat16", "Q4_1").
    """

    shape: tuple[int, ...]
    raw: np.ndarray
    decode: Callable[[np.ndarray], np.ndarray | jax.Array]
    stored: str = ""

    def array(self) -> np.ndarray | jax.Array:
        """The numbers, in `shape` and in the type that the file holds or de-quantises to."""
        return self.decode(self.raw).reshape(self.shape)


def stored_as(tensors: Mapping[str, Tensor]) -> str | None:
    """The type in which most of the numbers are stored; None without tensors."""
    sizes: Counter[str] = Counter()
    for tensor in tensors.values():
        sizes[tensor.stored] += math.prod(tensor.shape)
    return max(sizes, key=lambda name: sizes[name]) if sizes else None


def map_file(path: Path) -> np.ndarray:
    """The bytes of a file as uint8 [size], mapped and read-only. Errors: no such file, or one that cannot be read."""
    try:
        if path.stat().st_size == 0:
            return np.zeros(0, np.uint8)
        return np.asarray(np.memmap(path, mode="r", dtype=np.uint8))  # a plain array: np.memmap's views are slow to make
    except OSError as error:
        raise SinkjaxError(f"cannot read {path}: {error.strerror}") from None
