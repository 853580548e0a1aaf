"""What the two sides that run on torch have in common: the statistics, and the rate of a matrix product."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench_peers.worker import CORES, versions

torch.set_num_threads(CORES)


def received(weights: torch.Tensor) -> torch.Tensor:
    """Mean weight that each key gets from the queries that can see it: [B, H, T] from [B, H, T, T]."""
    length = weights.shape[-1]
    return weights.sum(dim=2) / torch.arange(length, 0, -1)


def sizes(residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Largest absolute value, L2 norm and the dim of the largest absolute value: each [B, T] from [B, T, d]."""
    largest, where = residual.abs().max(dim=-1)
    return largest, torch.linalg.vector_norm(residual, dim=-1), where


def record(per_layer: list[torch.Tensor], per_depth: list[tuple[torch.Tensor, ...]]) -> dict[str, np.ndarray]:
    """The statistics of one forward, in the names and axes of sinkjax."""
    names = ("resid_max", "resid_norm", "resid_argmax")
    depths = {name: torch.stack(column, dim=1).numpy() for name, column in zip(names, zip(*per_depth, strict=True), strict=True)}
    return {"attention_received": torch.stack(per_layer, dim=1).numpy()} | depths


class TorchSide(ABC):
    """A model and its prompts; `forward` is the library's own."""

    packages: tuple[str, ...]

    def __init__(self, folder: Path):
        self.folder = folder

    def read(self) -> dict[str, Any]:
        """Take the prompts from the folder; the versions of what runs here."""
        self.tokens = torch.from_numpy(np.load(self.folder / "tokens.npy")).long()
        return {"versions": versions(*self.packages)}

    @abstractmethod
    def forward(self, layer: int | None = None) -> dict[str, np.ndarray]:
        """The record of one forward, with key 0 masked in `layer`."""

    def sweep(self, layers: list[int]) -> dict[str, np.ndarray]:
        """One edited forward after the other; the records have a leading axis over edits."""
        records = [self.forward(layer) for layer in layers]
        return {name: np.stack([each[name] for each in records]) for name in records[0]}


def matmul(size: int, repeats: int) -> None:
    """`repeats` products of square float32 matrices."""
    a, b = torch.ones(size, size), torch.ones(size, size)
    for _ in range(repeats):
        a @ b
