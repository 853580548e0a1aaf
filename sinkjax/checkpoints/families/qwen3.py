"""Qwen3 (2025): a Llama with a norm of each head's queries and keys."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.families.qwen2 import VALUES, late_windows
from sinkjax.checkpoints.family import Family, Published, Separator, biases, decoder, rms_norm, rotary, sizes
from sinkjax.checkpoints.fields import Fields, always
from sinkjax.checkpoints.gguf_family import Gguf, has

TENSORS = names.LLAMA | names.modules(q_norm="model.layers.{}.self_attn.q_norm", k_norm="model.layers.{}.self_attn.k_norm")


def attention(fields: Fields) -> dict[str, Any]:
    """What Qwen3 and its mixtures of experts share."""
    norm, bias = rms_norm(fields), fields.flag("attention_bias")
    return norm | {"qk_norm": norm["norm"]} | biases(bias, bias, False)


def read(fields: Fields) -> dict[str, Any]:
    """The config."""
    found = sizes(fields)
    return found | rotary(fields) | attention(fields) | late_windows(fields, found["layers"])


def published(size: str, *shape: int, tied: bool) -> Published:
    """A released size."""
    more: dict[str, Any] = {"head_dim": 128, "tie_word_embeddings": tied}
    return Published(f"Qwen/Qwen3-{size}", VALUES | decoder(*shape, 151936, 40960, **more))


FAMILY = Family(
    "qwen3",
    read,
    TENSORS,
    defaults={"use_sliding_window": always(False), "attention_bias": always(False)},
    separator=Separator("<|endoftext|>", in_front=False, note="after each document; it has no BOS"),
    published={
        "qwen3-0.6b": published("0.6B", 1024, 3072, 28, 16, 8, tied=True),
        "qwen3-1.7b": published("1.7B", 2048, 6144, 28, 16, 8, tied=True),
        "qwen3-4b": published("4B", 2560, 9728, 36, 32, 8, tied=True),
        "qwen3-8b": published("8B", 4096, 12288, 36, 32, 8, tied=False),
        "qwen3-14b": published("14B", 5120, 17408, 40, 40, 8, tied=False),
        "qwen3-32b": published("32B", 5120, 25600, 64, 64, 8, tied=False),
    },
    gguf=Gguf("qwen3", implied={"hidden_act": "silu", "attention_bias": has("q_bias")}),
)
