"""transformers, eager: statistics from `output_attentions` and `output_hidden_states`, the edit in a registered attention."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AttentionInterface, AttentionMaskInterface, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.masking_utils import eager_mask
from transformers.models.llama.modeling_llama import eager_attention_forward

from bench_peers.torch_side import TorchSide, matmul, received, record, sizes
from bench_peers.worker import serve
from sinkjax.checkpoints.presets import find_preset


class MaskedKey:
    """Eager attention in which the queries of one layer, if any, do not see key 0; query 0 still sees itself."""

    name = "eager_masked_key"

    def __init__(self) -> None:
        self.layer: int | None = None
        AttentionInterface.register(self.name, self)
        AttentionMaskInterface.register(self.name, eager_mask)

    def __call__(self, module: torch.nn.Module, query, key, value, attention_mask, **options: Any) -> tuple:
        if module.layer_idx == self.layer:
            attention_mask = attention_mask.clone()
            attention_mask[:, :, 1:, 0] = -torch.inf
        return eager_attention_forward(module, query, key, value, attention_mask, **options)


def dense(gguf: Path, attention: str) -> PreTrainedModel:
    """The float32 model that transformers reads from a GGUF file, as an ordinary one, which it can also write."""
    read = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    plain = {name: value for name, value in read.config.to_dict().items() if name != "quantization_config"}
    config = type(read.config).from_dict(plain)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation=attention)
    model.load_state_dict(read.state_dict())
    return model.eval()


class Side(TorchSide):
    """The model without its unembedding. The last hidden state is taken before the final norm, as sinkjax does."""

    packages = ("transformers", "torch")

    def __init__(self, folder: Path):
        super().__init__(folder)
        self.gguf, self.edit = find_preset("smollm2-135m"), MaskedKey()
        self.causal = dense(self.gguf, self.edit.name)
        self.model = self.causal.model
        self.model.norm.register_forward_pre_hook(self._keep)

    def _keep(self, norm: torch.nn.Module, inputs: tuple) -> None:
        (self.last,) = inputs

    def write(self) -> None:
        """Write the model and its tokenizer as a folder, for sides that do not read GGUF files."""
        self.causal.save_pretrained(self.folder / "model")
        AutoTokenizer.from_pretrained(self.gguf.parent, gguf_file=self.gguf.name).save_pretrained(self.folder / "model")

    @torch.inference_mode()
    def forward(self, layer: int | None = None) -> dict[str, np.ndarray]:
        self.edit.layer = layer
        out = self.model(self.tokens, output_attentions=True, output_hidden_states=True, use_cache=False)
        hidden = (*out.hidden_states[:-1], self.last)
        return record([received(weights) for weights in out.attentions], [sizes(residual) for residual in hidden])

    @torch.inference_mode()
    def stream(self) -> torch.Tensor:
        self.edit.layer = None
        out = self.model(self.tokens[:1], output_hidden_states=True, use_cache=False)
        return torch.cat([*out.hidden_states[1:-1], self.last])

    @torch.inference_mode()
    def patched(self, layer: int, positions: list[int], donors: torch.Tensor, last: bool) -> torch.Tensor:
        def replace(module: torch.nn.Module, inputs: tuple, output: torch.Tensor) -> None:
            output[range(len(positions)), positions] = donors

        hook = self.model.layers[layer].register_forward_hook(replace)
        try:
            repeated = self.tokens[1:].expand(len(positions), -1)
            return self.causal(repeated, use_cache=False, logits_to_keep=int(last)).logits
        finally:
            hook.remove()


if __name__ == "__main__":
    side = Side(Path(sys.argv[1]))
    serve(
        {
            "read": side.read,
            "write": side.write,
            "forward": side.forward,
            "sweep": side.sweep,
            "patch": side.patch,
            "matmul": matmul,
        }
    )
