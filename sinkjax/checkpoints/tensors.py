"""Tensors as checkpoint files hold them: a name, a shape and raw bytes that become numbers only when asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sinkjax.errors import SinkjaxError
from sinkjax.model.config import Config


@dataclass(frozen=True, eq=False)
class Tensor:
    """One stored tensor.

    shape: outputs first, inputs last, as Hugging Face writes linear layers. raw: uint8, a view of the mapped file.
    decode: raw -> the numbers, in any shape with the right order; cheap for plain types, de-quantising for others.
    """

    shape: tuple[int, ...]
    raw: np.ndarray
    decode: Callable[[np.ndarray], np.ndarray]

    def array(self) -> np.ndarray:
        """The numbers, in `shape` and in the type that the file holds or de-quantises to."""
        return self.decode(self.raw).reshape(self.shape)


@dataclass(frozen=True)
class Checkpoint:
    """Everything that a checkpoint says, before any weight is read.

    where: its path, for messages. names: leaf name -> tensor name, "{}" standing for the layer (None: see `names.slots`).
    tensors: tensor name -> Tensor. ignored: patterns of tensor names that may be there without a meaning. tokenizer: a
    `Tokenizer`, or None if the files have none. source: provenance (see `load.Model`). initializer_range: the standard deviation
    of the weights as training starts, None if it is not stated.
    """

    where: str
    config: Config
    names: Mapping[str, str] | None
    tensors: Mapping[str, Tensor]
    ignored: tuple[str, ...]
    tokenizer: Any
    source: Mapping[str, Any]
    initializer_range: float | None = None


def map_file(path: Path) -> np.ndarray:
    """The bytes of a file as uint8 [size], mapped and read-only. Errors: no such file, or one that cannot be read."""
    try:
        if path.stat().st_size == 0:
            return np.zeros(0, np.uint8)
        return np.asarray(np.memmap(path, mode="r", dtype=np.uint8))  # a plain array: np.memmap's views are slow to make
    except OSError as error:
        raise SinkjaxError(f"cannot read {path}: {error.strerror}") from None
