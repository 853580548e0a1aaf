"""AFM (Arcee, 2025): a Llama whose MLP has no gate, with a squared ReLU."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.families import llama
from sinkjax.checkpoints.family import Family
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.gguf_family import Gguf


def read(fields: Fields) -> dict[str, Any]:
    return llama.read(fields) | {"gated_mlp": False}


FAMILY = Family("arcee", read, names.LLAMA, defaults=llama.FAMILY.defaults, gguf=Gguf("arcee", act="relu2", interleaved=True))
