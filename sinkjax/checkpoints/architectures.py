"""Models that the papers use, by a short name: their architecture ships with the package, their weights are on the hub.

So a study of a model of several gigabytes can be planned, and its random twin run, before anything is downloaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.hf_config import read_config
from sinkjax.checkpoints.model import Checkpoint


@dataclass(frozen=True)
class Architecture:
    """hub: the id under which the weights are to be had. values: what matters of its config.json."""

    hub: str
    values: Mapping[str, Any]


LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}
ARCHITECTURES = {
    "llama-2-7b": Architecture(
        "meta-llama/Llama-2-7b-hf",
        LLAMA
        | {
            "hidden_size": 4096,
            "intermediate_size": 11008,
            "max_position_embeddings": 4096,
            "num_attention_heads": 32,
            "num_hidden_layers": 32,
            "num_key_value_heads": 32,
            "vocab_size": 32000,
        },
    ),
    "llama-3.2-3b": Architecture(
        "meta-llama/Llama-3.2-3B",
        LLAMA
        | {
            "head_dim": 128,
            "hidden_size": 3072,
            "intermediate_size": 8192,
            "max_position_embeddings": 131072,
            "num_attention_heads": 24,
            "num_hidden_layers": 28,
            "num_key_value_heads": 8,
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 32.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192,
            },
            "rope_theta": 500000.0,
            "tie_word_embeddings": True,
            "vocab_size": 128256,
        },
    ),
    "mistral-7b": Architecture(
        "mistralai/Mistral-7B-v0.1",
        LLAMA
        | {
            "model_type": "mistral",
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "max_position_embeddings": 32768,
            "num_attention_heads": 32,
            "num_hidden_layers": 32,
            "num_key_value_heads": 8,
            "rope_theta": 10000.0,
            "sliding_window": 4096,
            "vocab_size": 32000,
        },
    ),
    "tinyllama-1.1b": Architecture(
        "TinyLlama/TinyLlama-1.1B-intermediate-step-1431k-3T",
        LLAMA
        | {
            "hidden_size": 2048,
            "intermediate_size": 5632,
            "max_position_embeddings": 2048,
            "num_attention_heads": 32,
            "num_hidden_layers": 22,
            "num_key_value_heads": 4,
            "rope_theta": 10000.0,
            "vocab_size": 32000,
        },
    ),
}


def architecture(name: str) -> Checkpoint:
    """The checkpoint of a name in ARCHITECTURES without weights or tokenizer."""
    values = ARCHITECTURES[name].values
    config, assumed = read_config(values, f"the architecture {name}")
    source = {"kind": "architecture", "name": name, "model_type": values["model_type"], "assumed": assumed}
    return Checkpoint(name, config, names.HUGGING_FACE, {}, (), None, source, values["initializer_range"])
