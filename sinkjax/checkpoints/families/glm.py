"""GLM-4-9B (Zhipu, 2024): a Llama with half of each head rotated in pairs (2i, 2i + 1), and a fused gate and up projection."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.family import Family, biases, rms_norm, rotary, sizes
from sinkjax.checkpoints.fields import Fields

TENSORS = {
    **names.LLAMA,
    **names.each("model.layers.{}.self_attn", names.half_split, q="q_proj", k="k_proj"),
    **names.fused("model.layers.{}.mlp.gate_up_proj", names.halves, leaves=("gate", "up")),
}


def read(fields: Fields) -> dict[str, Any]:
    values, norm = sizes(fields), rms_norm(fields)
    return values | rotary(fields, values["head_dim"], partial=0.5) | norm | biases(fields.flag("attention_bias"), False, False)


FAMILY = Family("glm", read, TENSORS, defaults={"tie_word_embeddings": False})
