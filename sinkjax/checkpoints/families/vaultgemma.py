"""VaultGemma (Google, 2025), trained with differential privacy: a Gemma 2 without the norms on the outputs."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.families import gemma2
from sinkjax.checkpoints.family import Family
from sinkjax.checkpoints.fields import Fields

TENSORS = names.LLAMA | names.modules("model.layers.{}", mlp_norm="pre_feedforward_layernorm")


def read(fields: Fields) -> dict[str, Any]:
    return gemma2.read(fields) | {"norm_place": "pre"}


FAMILY = Family(
    "vaultgemma", read, TENSORS, defaults=gemma2.FAMILY.defaults, fixed=gemma2.FIXED, separator=gemma2.FAMILY.separator
)
