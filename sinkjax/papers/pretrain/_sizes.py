"""Sizes of studies: named sets of fields of a training. This module imports no JAX.

Settings are a paper's where it states them, else chosen here, as `about` says. A micro-batch fits on one device of 80 GB.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

SizeName = Literal["mini", "340k", "60m", "1b", "152m", "backcopy", "backcopy-mini"]


@dataclass(frozen=True)
class Size:
    """task: its name for `sinkjax train`. fields: its config's fields. about: their source."""

    task: str
    fields: Mapping[str, object]
    about: str


LARGE = {
    "separator": "eos",
    "bos": "none",
    "context": 2048,
    "eval_batch": 100,
    "eval_every": 20,  # each evaluation has a checkpoint, so this is the most that an interruption costs
    "weight_decay": 0.1,
    "clip": 1.0,
    "compute_dtype": "bfloat16",
    "together": "map",
}
GU = {
    **LARGE,
    "text": "sail/regmix-data-sample",
    "tokenizer": "EleutherAI/gpt-neox-20b",
    "vocab_size": 50_432,
    "evaluate_on": "documents",
    "batch": 512,
    "learning_rates": (4e-4,),
    "warmup": 100,
}

SIZES: dict[str, Size] = {
    "mini": Size(
        "pretrain",
        {
            "layers": 4,
            "width": 128,
            "heads": 2,
            "mlp_width": 384,
            "context": 256,
            "batch": 8,
            "bos": "first",
            "learning_rates": (4e-3,),
            "warmup": 100,
            "weight_decay": 0.5,
            "clip": 1.0,
            "steps": 3000,
        },
        "A model for two CPU cores: 4 layers of width 128, 2 heads of 64, 8 blocks of 256 tokens a step, BOS first in"
        " each, decay 0.5 on everything. Chosen so that a softmax model develops a sink early; no paper uses it.",
    ),
    "340k": Size(
        "pretrain",
        {
            "layers": 4,
            "width": 64,
            "heads": 2,
            "head_dim": 64,
            "mlp_width": 192,
            "context": 128,
            "vocabulary": 512,
            "batch": 8,
            "micro_batch": 2,  # stays in a core's cache
            "bos": "first",
            "learning_rates": (4e-3,),
            "warmup": 100,
            "weight_decay": 0.2,
            "clip": 1.0,
            "steps": 7000,
            "eval_every": 200,
        },
        "A model for one CPU core: 4 layers of width 64, 2 heads of 64, 8 blocks of 128 tokens a step, a vocabulary of 512, BOS"
        " first in each, decay 0.2 on everything. Chosen so that a softmax model develops sinks and massive activations in a few"
        " minutes (docs/pretraining-plan.md); no paper uses it.",
    ),
    "60m": Size(
        "pretrain",
        {**GU, "layers": 10, "width": 768, "heads": 8, "mlp_width": 1536, "steps": 20_000, "micro_batch": 16},
        "Gu et al. 2025: 10 layers of width 768, 1.05M tokens a batch, 20,000 steps, no BOS. Their loss is over 50 batches of"
        " Pile-CC, here over 100 held-out blocks of the training text that begin where a document does, as their sinks are"
        " measured."
        " The released weights of its 17 domains are not here: the text is read in the mixture that it comes in.",
    ),
    "1b": Size(
        "pretrain",
        GU | {"layers": 22, "width": 2048, "heads": 16, "mlp_width": 5632, "steps": 40_000, "micro_batch": 8, "remat": True},
        "Gu et al. 2025, their larger model: 22 layers of width 2048, 40,000 steps; data and optimiser as at 60m.",
    ),
    "152m": Size(
        "pretrain",
        {
            **LARGE,
            "text": "Skylion007/openwebtext",
            "tokenizer": "TinyLlama/TinyLlama_v1.1",
            "vocab_size": 32_000,
            "batch": 256,
            "layers": 12,
            "width": 768,
            "heads": 12,
            "mlp_width": 2688,
            "learning_rates": (6e-4,),
            "schedule": "cosine",
            "warmup": 2000,
            "steps": 38_147,
            "micro_batch": 16,
        },
        "Li et al. 2026: 152M parameters in the style of Llama-2, 20B tokens of OpenWebText. The rest is not stated."
        " Chosen here: 12 layers of width 768, 12 heads, MLP 2688 and the 32,000 tokens of Llama-2, which make 152M; blocks of"
        " 2048, 256 of them a batch; AdamW at 6e-4, cosine to a tenth, 2,000 steps of warm-up, decay 0.1.",
    ),
    "backcopy": Size(
        "backcopy",
        {},
        "Guo et al. 2024: width 256, one head, 256 characters a sequence, 512 sequences a batch, 10,000 steps of Adam at 3e-4,"
        " decay 1e-4.",
    ),
    "backcopy-mini": Size(
        "backcopy",
        {"width": 64, "mlp_width": 256, "context": 64, "batch": 64, "eval_batch": 64, "learning_rates": (1e-3,), "steps": 2000},
        "The language of Guo et al. 2024 for two CPU cores: width 64, 64 characters a sequence, 64 sequences a batch, 2,000 steps"
        " at 1e-3. Chosen here.",
    ),
}
