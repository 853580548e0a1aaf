"""Export a model as a Hugging Face Llama folder for transformers and compatible tools."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkjax.checkpoints import names
from sinkjax.checkpoints.family import ACTIVATIONS, SIZES, families
from sinkjax.checkpoints.hf_config import read_config
from sinkjax.checkpoints.model import check_model
from sinkjax.checkpoints.native import stored, write_model
from sinkjax.config_files.checks import refuse
from sinkjax.config_files.files import user_path
from sinkjax.model.config import Config, RMSNorm
from sinkjax.model.rotary import DynamicScaling, LinearScaling, Llama3Scaling, Rope, YarnScaling

if TYPE_CHECKING:
    from sinkjax.checkpoints.model import Model

MODEL_TYPE = "llama"
KINDS = {LinearScaling: "linear", DynamicScaling: "dynamic", Llama3Scaling: "llama3", YarnScaling: "yarn"}


def export(model: Model, folder: str | Path, dtype: str | None = None, card: str | None = None) -> Path:
    """Write a Llama-shaped model in the same way as transformers' `save_pretrained`.

    Args:
        model: The model.
        folder: A folder for this export only; an earlier export is replaced once the new one is complete.
        dtype: Dtype of the stored weights; None keeps the model's.
        card: Markdown for README.md; None for a short note on the model's origin.

    Returns:
        The folder.

    Raises:
        SinkjaxError: The architecture is not a Llama's (the field is named); any error of `save`.
    """
    check_model(model)
    folder = user_path(folder)
    values = llama_values(model.config)
    arrays = under_names(stored(model, dtype), model.config, families()[MODEL_TYPE].names(model.config))
    if model.tokenizer is not None:
        values |= {"bos_token_id": model.tokenizer.bos, "eos_token_id": model.tokenizer.eos}
    values["torch_dtype"] = str(next(iter(arrays.values())).dtype)
    return write_model(folder, values, arrays, model, card)


def under_names(host: Mapping[str, np.ndarray], config: Config, table: names.Table | None) -> dict[str, np.ndarray]:
    """Return a model's leaves with their names and shapes in files. host: leaf name -> array."""
    return {name: _as_stored(host, filled) for name, filled in names.slots(config, table).items()}


def _as_stored(host: Mapping[str, np.ndarray], filled: Sequence[names.Slot]) -> np.ndarray:
    """Assemble the stored tensor from its filled slots."""
    stored = np.empty(filled[0].stored, host[filled[0].leaf].dtype)
    for slot in filled:
        block, seen = host[slot.leaf][slot.place], stored if slot.view is None else stored.reshape(slot.view)
        shape = seen[slot.index].shape
        if slot.transposed:  # experts that are stored together are along the first axis of both
            block = block.reshape(*slot.stored[:-2], shape[-1], -1).swapaxes(-1, -2)
        seen[slot.index] = block.reshape(shape)
    return stored


def llama_values(config: Config) -> dict[str, Any]:
    """Return the config.json of a Llama.

    It describes the nearest Llama; a config that would read back differently raises an error.
    """
    norm = config.norm if isinstance(config.norm, RMSNorm) else RMSNorm(1e-5)
    rope = config.position if isinstance(config.position, Rope) else Rope(10000.0)
    scaling = {} if rope.scaling is None else {k: v for k, v in dataclasses.asdict(rope.scaling).items() if v is not None}
    original, dynamic = scaling.pop("original_context", None), isinstance(rope.scaling, DynamicScaling)
    scaling |= {} if dynamic or original is None else {"original_max_position_embeddings": original}
    values: dict[str, Any] = {
        "model_type": MODEL_TYPE,
        "architectures": ["LlamaForCausalLM"],
        **{key: getattr(config, name) for name, key in SIZES.items()},
        "intermediate_size": config.mlp_width or 1,
        "vocab_size": config.vocab_size or 1,
        "max_position_embeddings": original if dynamic else config.context,
        "rms_norm_eps": norm.eps,
        "rope_theta": rope.theta,
        "rope_scaling": None if rope.scaling is None else {"rope_type": KINDS[type(rope.scaling)], **scaling},
        "hidden_act": next((name for name, own in ACTIVATIONS.items() if own == config.activation), "silu"),
        "attention_bias": config.qkv_bias,
        "mlp_bias": config.mlp_bias,
    }
    nearest, _ = read_config(values, "the exported config")
    for name in (field.name for field in dataclasses.fields(Config)):
        value, differs = getattr(config, name), getattr(config, name) != getattr(nearest, name)
        refuse(differs, f"only a Llama can be exported to a Hugging Face folder, and this model's {name} is {value!r}")
    uneven = config.width % config.heads > 0
    refuse(uneven, f"transformers needs a Llama whose width ({config.width}) is a multiple of heads ({config.heads})")
    return values
