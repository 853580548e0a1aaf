"""What the two sides that run on torch have in common: the statistics, and the rate of a matrix product."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench_peers.worker import CORES, versions

torch.set_num_threads(CORES)
RIGHT, WRONG = 260, 1000  # tokens whose logits are subtracted


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


class PatchSide(ABC):
    """A model and its prompts: the first is clean, the second corrupted."""

    packages: tuple[str, ...]

    def __init__(self, folder: Path):
        self.folder = folder

    def read(self) -> dict[str, Any]:
        """Take the prompts from the folder; the versions of what runs here."""
        self.tokens = torch.from_numpy(np.load(self.folder / "tokens.npy")).long()
        return {"versions": versions(*self.packages)}

    def patch(self, task: str, layers: list[int], positions: list[int]) -> dict[str, np.ndarray]:
        """Patch the clean stream into the corrupted prompt at each layer and position; a batch of positions for each layer."""
        donors, found = self.stream(), []
        for layer in layers:
            logits = self.patched(layer, positions, donors[layer, positions], task == "last")
            if task == "last":
                found.append(logits[:, -1, RIGHT] - logits[:, -1, WRONG])
            else:
                targets = self.tokens[1:, 1:].expand(len(positions), -1)
                losses = torch.nn.functional.cross_entropy(logits[:, :-1].transpose(1, 2), targets, reduction="none")
                found.append(losses.mean(dim=1))
        return {task: torch.cat(found).numpy()}

    @abstractmethod
    def stream(self) -> torch.Tensor:
        """The clean residual stream after each block, [L, T, d]."""

    @abstractmethod
    def patched(self, layer: int, positions: list[int], donors: torch.Tensor, last: bool) -> torch.Tensor:
        """Logits [positions, T or 1, V] of the corrupted prompt, each with the stream after a block replaced at one position.

        last: whether only the last position's logits are needed.
        """


class TorchSide(PatchSide):
    """A side with a `forward` of its own."""

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
