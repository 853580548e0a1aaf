"""TransformerLens: statistics and the edit by hooks; it runs in an environment of its own, without sinkjax.

`hook_attn_scores` of the Llama bridge fires before the softmax. `stop_at_layer` stops before a block, so it cannot stop behind
the last one; the hook there raises the exception that TransformerLens itself uses to stop: nothing is normed or unembedded.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformer_lens.model_bridge import TransformerBridge
from transformer_lens.model_bridge.exceptions import StopAtLayerException
from transformers import AutoModelForCausalLM

from bench_peers.torch_side import TorchSide, received, record, sizes
from bench_peers.worker import serve


def mask_key(scores: torch.Tensor, hook: Any) -> torch.Tensor:
    """Scores [B, H, T, T] before the softmax, in which no query but query 0 sees key 0."""
    scores[:, :, 1:, 0] = -torch.inf
    return scores


class Side(TorchSide):
    """The model, bridged without a change to its weights (no folding, no centring)."""

    packages = ("transformer-lens", "transformers", "torch")

    def __init__(self, folder: Path):
        super().__init__(folder)
        loaded = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32, attn_implementation="eager")
        self.model = TransformerBridge.boot_transformers(str(folder / "model"), hf_model=loaded.eval(), device="cpu")
        self.layers = range(self.model.cfg.n_layers)

    @torch.inference_mode()
    def forward(self, layer: int | None = None) -> dict[str, np.ndarray]:
        per_layer: list[torch.Tensor] = []
        per_depth: list[tuple[torch.Tensor, ...]] = []

        def keep(values: list, statistic: Any, x: torch.Tensor, hook: Any) -> None:
            values.append(statistic(x))

        def stop(x: torch.Tensor, hook: Any) -> None:
            raise StopAtLayerException(x)

        hooks = [("blocks.0.hook_in", partial(keep, per_depth, sizes))]
        for number in self.layers:
            hooks.append((f"blocks.{number}.attn.hook_pattern", partial(keep, per_layer, received)))
            hooks.append((f"blocks.{number}.hook_out", partial(keep, per_depth, sizes)))
        hooks.append((f"blocks.{self.layers[-1]}.hook_out", stop))
        if layer is not None:
            hooks.append((f"blocks.{layer}.attn.hook_attn_scores", mask_key))
        self.model.run_with_hooks(self.tokens, return_type=None, fwd_hooks=hooks)
        return record(per_layer, per_depth)

    @torch.inference_mode()
    def stream(self) -> torch.Tensor:
        names = [f"blocks.{layer}.hook_out" for layer in self.layers]
        _, cache = self.model.run_with_cache(self.tokens[:1], names_filter=lambda name: name in names, return_type=None)
        return torch.cat([cache[name] for name in names])

    @torch.inference_mode()
    def patched(self, layer: int, positions: list[int], donors: torch.Tensor, last: bool) -> torch.Tensor:
        def replace(stream: torch.Tensor, hook: Any) -> torch.Tensor:
            stream[range(len(positions)), positions] = donors
            return stream

        repeated = self.tokens[1:].repeat(len(positions), 1)
        return self.model.run_with_hooks(repeated, return_type="logits", fwd_hooks=[(f"blocks.{layer}.hook_out", replace)])


if __name__ == "__main__":
    side = Side(Path(sys.argv[1]))
    serve({"read": side.read, "forward": side.forward, "sweep": side.sweep, "patch": side.patch})
