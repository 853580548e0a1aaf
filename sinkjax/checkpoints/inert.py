"""Keys of a config.json that change neither weights nor forward, by reason (`inert.yaml`), and keys that do so at one value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sinkjax.config_files import documents

REASONS = {
    reason: tuple(keys)
    for reason, keys in documents.parse(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"), "inert.yaml").items()
}
INERT = frozenset(key for keys in REASONS.values() for key in keys)

# Keys of other architectures -> the value that says that this one lacks the feature.
NEUTRAL: dict[str, Any] = {
    **dict.fromkeys(("rope_interleaved", "use_mrope", "is_decoder", "is_encoder_decoder", "add_cross_attention"), False),
    **dict.fromkeys(("alibi", "attention_bias", "lm_head_bias", "mlp_bias", "qk_layernorm", "use_qk_norm"), False),
    **dict.fromkeys(("tie_encoder_decoder", "use_sliding_window", "use_bidirectional_attention"), False),
    **dict.fromkeys(("num_experts", "num_local_experts", "num_nextn_predict_layers"), 0),
    **dict.fromkeys(("full_attn_mod", "interpolate_factor"), 1),
    "pruned_heads": {},
}
