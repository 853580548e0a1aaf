"""Models of text and images whose text part is a known family: that part is read as a model of its own.

Given text alone, these models compute what their text part computes: nothing in it acts differently without an image, and the
three positions of Qwen's rotation (time, height, width) are then equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.hf_config import CODE, INERT, QUANTISED

# Names of the other parts' modules, in the model or in its base model.
PARTS = ("vision_tower", "multi_modal_projector", "visual", "vision_model", "connector")
PATTERNS = tuple(f"{prefix}{part}.*" for part in PARTS for prefix in ("", "model."))
# Keys of the other parts.
KEYS = frozenset(
    {"_pad_token_id", "boi_token_index", "downsample_ratio", "eoi_token_index", "image_seq_length", "image_token_id"}
    | {"image_token_index", "mm_tokens_per_image", "multimodal_projector_bias", "projector_hidden_act", "scale_factor"}
    | {"spatial_merge_size", "video_token_id", "vision_config", "vision_end_token_id", "vision_feature_layer"}
    | {"vision_feature_select_strategy", "vision_start_token_id", "vision_token_id"}
)


@dataclass(frozen=True)
class Whole:
    """A model with a text part.

    defaults: keys that released files omit from the text part -> their documented defaults in transformers. flat: the family of
    the text part in files that do not state it apart.
    """

    defaults: Mapping[str, Any] = field(default_factory=dict)
    flat: str | None = None


GEMMA3 = {"vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "rms_norm_eps": 1e-6}
GEMMA3 |= {"max_position_embeddings": 131072, "query_pre_attn_scalar": 256, "sliding_window": 4096}
WHOLES = {
    "gemma3": Whole({**GEMMA3, "hidden_activation": "gelu_pytorch_tanh"}),
    "mistral3": Whole({"tie_word_embeddings": False}),
    **dict.fromkeys(("qwen2_vl", "qwen2_5_vl"), Whole(flat="qwen2")),
    **dict.fromkeys(("llava", "qwen3_vl", "idefics3", "smolvlm", "internvl"), Whole()),
}
# Model types of text parts that are families under another name.
TEXT = {"qwen2_vl_text": "qwen2", "qwen2_5_vl_text": "qwen2", "qwen3_vl_text": "qwen3"}


def text_part(
    values: Mapping[str, Any], where: str, ignore_keys: Collection[str] = ()
) -> tuple[dict[str, Any], dict[str, Any], str | None]:
    """Return the text part of a config.json's values, documented defaults of keys that it omits, and the whole's model type.

    The values are unchanged, without defaults and None if the model is not one of WHOLES. Errors: a key of the whole that is not
    known to concern other parts.
    """
    kind = values.get("model_type")
    whole = WHOLES.get(kind) if isinstance(kind, str) else None
    if whole is None:
        return dict(values), {}, None
    outer = Fields(values, where, ignored=ignore_keys)
    text = outer.table("text_config")
    shared = {"model_type", "tie_word_embeddings", CODE, *QUANTISED}
    if text:
        outer.read |= shared | {"vocab_size", "hidden_size"}  # repeated outside by some files
        outer.finish(INERT | KEYS)
    elif whole.flat:
        text = {key: value for key, value in values.items() if key not in KEYS} | {"model_type": whole.flat}
    text["model_type"] = TEXT.get(str(text.get("model_type")), text.get("model_type"))
    text |= {key: values[key] for key in shared - {"model_type"} if values.get(key) is not None}
    for key in ("rope_scaling", "rope_parameters"):
        if isinstance(table := text.get(key), dict):
            table = {name: value for name, value in table.items() if name not in ("mrope_section", "mrope_interleaved")}
            text[key] = {name: "default" if value == "mrope" else value for name, value in table.items()}
    return text, {key: value for key, value in whole.defaults.items() if text.get(key) is None}, str(kind)


def left_out(names: Iterable[str]) -> dict[str, int]:
    """Count the tensors of each other part."""
    return dict(Counter(part for name in names if (part := name.removeprefix("model.").split(".")[0]) in PARTS))
