"""A language model in plain PyTorch, written for the benchmark: the Llama of transformers, AdamW, clip, a batch a step.

Attention is PyTorch's own fused one, the optimiser is fused, and the batches lie ready: the fastest that a plain loop has here.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
import transformers

from bench_peers.worker import CORES, serve, versions

torch.set_num_threads(CORES)
BATCHES = 8  # different ones, over and over


def mean_loss(model: torch.nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """Cross entropy of the next token in nats. tokens: int64 [B, T + 1]."""
    logits = model(tokens[:, :-1], use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def loss(folder: str, file: str) -> dict[str, float]:
    """Loss and norm of the gradient on the tokens in `file`, of the model in `folder`."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with np.load(file) as arrays:
        found = mean_loss(model, torch.from_numpy(arrays["tokens"].astype(np.int64)))
    found.backward()
    norms = torch.stack([parameter.grad.norm() for parameter in model.parameters()])
    return {"loss": found.item(), "gradient": norms.norm().item()}


def train(folder: str, batch: int, length: int, steps: int, compiled: bool, warm_up: int = 3) -> dict[str, Any]:
    """Train the model in `folder` for `warm_up` steps, which compile, then `steps` more against the clock."""
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa").train()
    tokens = torch.randint(model.config.vocab_size, (BATCHES, batch, length + 1))
    optimiser = torch.optim.AdamW(model.parameters(), lr=4e-3, betas=(0.9, 0.95), weight_decay=0.5, fused=True)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 0.01, total_iters=100)
    forward = torch.compile(mean_loss) if compiled else mean_loss

    def step(number: int) -> None:
        found = forward(model, tokens[number % BATCHES])
        optimiser.zero_grad(set_to_none=True)
        found.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        found.item()  # a training looks at its loss

    for number in range(warm_up):
        step(number)
    begun = time.perf_counter()
    for number in range(steps):
        step(number)
    return {"milliseconds": (time.perf_counter() - begun) / steps * 1e3}


if __name__ == "__main__":
    serve({"train": train, "loss": loss, "versions": lambda: {"versions": versions("torch", "transformers")}})
