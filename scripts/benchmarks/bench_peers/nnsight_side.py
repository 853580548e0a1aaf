"""nnsight: patches as the invokes of one trace; it runs in the environment of TransformerLens, without sinkjax."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from nnsight import LanguageModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from bench_peers.torch_side import PatchSide
from bench_peers.worker import serve


class Side(PatchSide):
    """The model, wrapped with its weights as they are."""

    packages = ("nnsight", "transformers", "torch")

    def __init__(self, folder: Path):
        super().__init__(folder)
        loaded = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32, attn_implementation="eager")
        self.model = LanguageModel(loaded.eval(), tokenizer=AutoTokenizer.from_pretrained(folder / "model"))

    @torch.inference_mode()
    def stream(self) -> torch.Tensor:
        blocks = self.model.model.layers
        with self.model.trace(self.tokens[:1]):
            found = list().save()  # noqa: C408 - nnsight saves the list that this call makes
            for block in blocks:
                found.append(block.output)
        return torch.stack([each[0] for each in found])

    @torch.inference_mode()
    def patched(self, layer: int, positions: list[int], donors: torch.Tensor, last: bool) -> torch.Tensor:
        with self.model.trace(**({"logits_to_keep": 1} if last else {})) as tracer:
            found = list().save()  # noqa: C408
            for position, donor in zip(positions, donors, strict=True):
                with tracer.invoke(self.tokens[1:]):
                    self.model.model.layers[layer].output[:, position] = donor
                    found.append(self.model.lm_head.output)
        return torch.cat(found)


if __name__ == "__main__":
    side = Side(Path(sys.argv[1]))
    serve({"read": side.read, "patch": side.patch})
