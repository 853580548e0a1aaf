"""Granite 4 (IBM, 2025), dense: a Granite stored as a hybrid without recurrent layers and without routed experts."""

from __future__ import annotations

from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.families import granite
from sinkjax.checkpoints.family import COMMON, Family
from sinkjax.checkpoints.fields import Fields
from sinkjax.config_files.checks import refuse
from sinkjax.model.config import NoPosition

MLP = "model.layers.{}.shared_mlp"
TENSORS = {
    **names.LLAMA,
    **names.fused(f"{MLP}.input_linear", names.halves, ("gate", "up")),
    **names.modules(MLP, down="output_linear"),
}
KINDS = ("attention", "full_attention")  # as transformers 4 and 5 name them


def read(fields: Fields) -> dict[str, Any]:
    """Read the config; its MLP is what other Granites 4 have beside their routed experts."""
    values = granite.read(fields, mlp_width="shared_intermediate_size")
    kinds = fields.get("layer_types")
    fields.require(isinstance(kinds, list) and len(kinds) == values["layers"], "layer_types", "a list of each layer's kind")
    other = next((kind for kind in kinds if kind not in KINDS), None)
    refuse(other is not None, f"{fields.where} has layers of kind {other!r}, which have no attention weights")
    refuse(fields.get("num_local_experts") != 0, f"{fields.where} has routed experts beside a shared one, which is not supported")
    fields.read |= {"intermediate_size", "num_experts_per_tok", "position_embedding_type"}
    if fields.values.get("position_embedding_type") != "rope":  # as transformers, which rotates only then
        fields.require(fields.values.get("position_embedding_type") in (None, "nope"), "position_embedding_type", "rope or nope")
        values["position"] = NoPosition()
    return values


INERT = frozenset({"init_method", "normalization_function", "time_step_limit"}) | {
    f"mamba_{key}"
    for key in ("chunk_size", "conv_bias", "d_conv", "d_head", "d_state", "expand", "n_groups", "n_heads", "proj_bias")
}
DEFAULTS = COMMON | {"mlp_bias": False, "rope_theta": 10000.0} | dict.fromkeys(granite.FACTORS, 1.0)
FAMILY = Family("granitemoehybrid", read, TENSORS, defaults=DEFAULTS, inert=INERT, fixed={"mlp_bias": False})
