"""The trigger task in plain PyTorch, written for the benchmark: one model, Adam, fresh data at every step.

Two ways to make the data: one sequence after the other in Python, as the task was published, and a whole batch by tensor
operations on the device, which is the fair peer. The model and the optimiser are the same.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from bench_peers.worker import CORES, serve, versions

torch.set_num_threads(CORES)
Batch = tuple[torch.Tensor, torch.Tensor]


class Attention(torch.nn.Module):
    """Causal heads as wide as the stream, without scale, norm, MLP or positions."""

    def __init__(self, width: int, heads: int, normaliser: str, residual: bool):
        super().__init__()
        self.shape, self.normaliser, self.residual = (heads, width), normaliser, residual
        self.q, self.k, self.v = (torch.nn.Linear(width, heads * width, bias=False) for _ in range(3))
        self.o = torch.nn.Linear(heads * width, width, bias=False)
        for parameter in self.parameters():
            torch.nn.init.normal_(parameter, std=0.02)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        T = x.shape[1]
        q, k, v = (project(x).unflatten(-1, self.shape).transpose(1, 2) for project in (self.q, self.k, self.v))
        scores = q @ k.transpose(-1, -2)
        later = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)
        if self.normaliser == "softmax":
            weights = scores.masked_fill(later, -torch.inf).softmax(-1)
        else:
            weights = scores.relu().masked_fill(later, 0) / torch.arange(T, device=x.device).clamp(min=1)[:, None]
        out = self.o((weights @ v).transpose(1, 2).flatten(2))
        return x + out if self.residual else out


def one_by_one(width: int, length: int, batch: int, residual: bool) -> Iterator[Batch]:
    """Batches whose sequences are made one after the other."""

    def sequence() -> Batch:
        trigger = int(torch.randint(2, length, ()))
        x = torch.zeros(length, width)
        x[0, 0] = 1
        x[1:, 2:-1] = torch.rand(length - 1, width - 3) * 2 - 1
        x[1:, -1] = 1
        x[trigger, 1], x[trigger, -1] = 1, 0
        y = x.clone() if residual else torch.zeros_like(x)
        y[trigger] += x[1 : trigger + 1].mean(0)
        return x, y

    while True:
        xs, ys = zip(*(sequence() for _ in range(batch)), strict=True)
        yield torch.stack(xs), torch.stack(ys)


def at_once(width: int, length: int, batch: int, residual: bool, device: str) -> Iterator[Batch]:
    """Batches made by a few operations on whole tensors."""
    position = torch.arange(length, device=device)
    first = (position == 0).float()
    while True:
        trigger = torch.randint(2, length, (batch, 1), device=device)
        x = torch.rand(batch, length, width, device=device) * 2 - 1
        here = position == trigger
        x[..., 0], x[..., 1] = first, here.float()
        x[:, 0, 1:] = 0
        x[..., -1] = 1 - first - here.float()
        seen = ((position > 0) & (position <= trigger)).float() / trigger
        mean = seen[:, None] @ x
        yield x, here[..., None] * mean + (x if residual else 0)


def network(layers: int, heads: int, width: int, normaliser: str) -> torch.nn.Sequential:
    """The model; several layers add to their input."""
    return torch.nn.Sequential(*(Attention(width, heads, normaliser, layers > 1) for _ in range(layers)))


def loss(file: str, heads: int, normaliser: str) -> dict[str, Any]:
    """The loss of a model and a batch that sinkjax wrote, and the norm of its gradient."""
    arrays = {name: torch.from_numpy(array) for name, array in np.load(file).items()}
    layers, width = arrays["q"].shape[:2]
    model = network(layers, heads, width, normaliser)
    for number, block in enumerate(model):
        for name in ("q", "k", "v"):
            getattr(block, name).weight.data = arrays[name][number].reshape(width, -1).T
        block.o.weight.data = arrays["o"][number].reshape(-1, width).T
    found = (model(arrays["x"]) - arrays["y"]).square().mean()
    found.backward()
    norms = torch.stack([parameter.grad.norm() for parameter in model.parameters()])
    return {"loss": found.item(), "gradient": norms.norm().item()}


def train(
    data: str, layers: int, heads: int, normaliser: str, steps: int, warm_up: int = 3, device: str = "cpu"
) -> dict[str, Any]:
    """Train `warm_up` steps, then `steps` more against the clock. data: "one by one" or "at once"."""
    torch.manual_seed(0)
    width, length, batch, residual = 16, 16, 128, layers > 1
    model = network(layers, heads, width, normaliser).to(device)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-4 if layers > 1 else 1e-3, betas=(0.9, 0.95))
    sequences = (
        one_by_one(width, length, batch, residual) if data == "one by one" else at_once(width, length, batch, residual, device)
    )

    def step() -> None:
        x, y = (part.to(device) for part in next(sequences))
        errors = model(x) - y
        optimiser.zero_grad(set_to_none=True)
        errors.square().mean().backward()
        optimiser.step()
        errors.detach().abs().max().item()  # the published stop looks at the largest error of each batch

    for _ in range(warm_up):
        step()
    begun = time.perf_counter()
    for _ in range(steps):
        step()
    return {"milliseconds": (time.perf_counter() - begun) / steps * 1e3}


if __name__ == "__main__":
    serve({"train": train, "loss": loss, "versions": lambda: {"versions": versions("torch")}})
