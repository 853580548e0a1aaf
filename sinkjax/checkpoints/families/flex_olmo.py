"""FlexOlmo (Ai2, 2025): an OLMo 2 with a mixture of experts, each of which may come from another owner's data."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.families import olmo2, qwen3_moe
from sinkjax.checkpoints.family import COMMON, Family
from sinkjax.checkpoints.fields import Fields

MIXTURE = ("router", "gate", "up", "down")
TENSORS = olmo2.TENSORS | {leaf: qwen3_moe.TENSORS[leaf] for leaf in MIXTURE}


def read(fields: Fields) -> dict[str, Any]:
    return olmo2.read(fields) | {"experts": qwen3_moe.experts(fields)}


SPELLED = {"num_local_experts": "num_experts"}
DEFAULTS = COMMON | {"norm_topk_prob": False}
FAMILY = Family("flex_olmo", read, TENSORS, defaults=DEFAULTS, spelled=SPELLED, layouts=(names.FUSED_EXPERTS,))
