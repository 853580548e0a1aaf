"""Folders of small random models as GGUF files: what llama.cpp's converter does to names, values and metadata.

Names come from the name map of the `gguf` package, and the changes of values follow the converter, so neither comes from the
tables that are tested.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.numpy import load_file, save_file

from tests.checkpoints.files import interleaved, write_gguf

# Model type -> the architecture's name in a GGUF, where they differ.
RENAMED = {
    "cohere": "command-r", "gemma3_text": "gemma3", "gpt_neox": "gptneox", "gpt_oss": "gpt-oss",
    "hunyuan_v1_dense": "hunyuan-dense", "mistral": "llama", "mixtral": "llama", "olmo3": "olmo2",
    "phi": "phi2", "qwen3_moe": "qwen3moe",
}  # fmt: skip
SAME = (
    "arcee bloom cohere2 ernie4_5 exaone exaone4 falcon gemma gemma2 glm4 gpt2 granite granitemoe llama mpt nemotron olmo olmo2 "
    "olmoe phi3 qwen2 qwen3 seed_oss smollm3 stablelm starcoder2"
)
ARCHITECTURES = dict(sorted(({name: name for name in SAME.split()} | RENAMED).items()))
PERMUTED = ("arcee", "granite", "granitemoe", "llama", "mistral", "mixtral", "olmo", "smollm3")
OFFSET = ("gemma", "gemma2", "gemma3_text", "nemotron")
# Settings for which a GGUF has no key; where the drawn model has others than the released ones, they must be assumed.
UNSTATED = {
    "arcee": ("hidden_act",),
    "cohere2": ("layer_types",),
    "olmoe": ("norm_topk_prob",),
    "gemma2": ("query_pre_attn_scalar", "hidden_activation"),
    "gemma3_text": ("query_pre_attn_scalar", "layer_types"),
    "gpt2": ("activation_function", "scale_attn_weights", "scale_attn_by_inverse_layer_idx"),
    "gpt_neox": ("hidden_act",),
    "gpt_oss": ("swiglu_alpha", "swiglu_limit"),
    "nemotron": ("hidden_act",),
    "qwen2": ("use_sliding_window", "max_window_layers", "layer_types", "sliding_window"),
    "qwen3": ("use_sliding_window", "max_window_layers", "layer_types", "sliding_window"),
    "qwen3_moe": ("norm_topk_prob",),
    "smollm3": ("no_rope_layers", "use_sliding_window", "sliding_window", "layer_types"),
}
KEYS = {
    "block_count": ("num_hidden_layers", "n_layer", "n_layers"),
    "context_length": ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"),
    "embedding_length": ("hidden_size", "n_embd", "d_model"),
    "feed_forward_length": ("ffn_hidden_size", "intermediate_size", "n_inner"),
    "attention.head_count": ("num_attention_heads", "n_head", "n_heads"),
    "attention.head_count_kv": ("num_kv_heads", "num_key_value_heads"),
    "attention.key_length": ("head_dim",),
    "attention.value_length": ("head_dim",),
    "attention.layer_norm_rms_epsilon": ("rms_norm_eps",),
    "attention.layer_norm_epsilon": ("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps"),
    "attention.scale": ("attention_multiplier",),
    "attention.clamp_kqv": ("clip_qkv",),
    "attn_logit_softcapping": ("attn_logit_softcapping",),
    "final_logit_softcapping": ("final_logit_softcapping",),
    "embedding_scale": ("embedding_multiplier",),
    "residual_scale": ("residual_multiplier",),
    "logit_scale": ("logits_scaling", "logit_scale"),
    "use_parallel_residual": ("use_parallel_residual",),
    "expert_count": ("num_local_experts", "num_experts"),
    "expert_used_count": ("num_experts_per_tok",),
    "expert_feed_forward_length": ("moe_intermediate_size",),
    "vocab_size": ("vocab_size",),
}
WINDOWED = ("cohere2", "exaone4", "gemma2", "gemma3_text", "gpt_oss", "mistral", "mixtral", "olmo3", "phi3", "starcoder2")


def as_float32(values: Any) -> Any:
    """The numbers of a config as float32 holds them, as in a GGUF's metadata."""
    if isinstance(values, dict):
        return {key: as_float32(value) for key, value in values.items()}
    if isinstance(values, list):
        return [as_float32(value) for value in values]
    return float(np.float32(values)) if isinstance(values, float) else values


def round_folder(folder: Path) -> None:
    """Round the numbers of a folder to those that its GGUF can hold: float32, and the sum of 1 and a norm's gain as float32."""
    values = as_float32(json.loads((folder / "config.json").read_text()))
    offset = values["model_type"] in OFFSET
    (folder / "config.json").write_text(json.dumps(values))
    weights = load_file(folder / "model.safetensors")
    for name, array in weights.items():
        one = float(offset and name.endswith("norm.weight"))
        weights[name] = (array + one).astype(np.float32).astype(np.float64) - one
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def write_as_gguf(folder: Path, path: Path) -> dict[str, Any]:
    """Write a folder as a GGUF. Returns what must be assumed of it, as config.json keys with values."""
    values = json.loads((folder / "config.json").read_text())
    family = values["model_type"]
    weights = load_file(folder / "model.safetensors")
    tensors = {name: array.astype(np.float32) for name, array in stored(family, values, weights)}
    architecture = ARCHITECTURES[family]
    arch = next(arch for arch, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    stated = metadata(family, values)
    names = gguf.get_tensor_name_map(arch, stated["block_count"])
    named = {}
    for name, array in tensors.items():
        new = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert new is not None, (architecture, name)
        named[new] = array
    write_gguf(path, stated, named | rotary_tensors(values), architecture)
    nulls = [key for key in values if key.endswith("_logit_softcapping") and values[key] is None]  # an absent cap is the default
    return {key: values[key] for key in UNSTATED.get(family, ()) if values.get(key) is not None} | dict.fromkeys(nulls)


def metadata(family: str, values: dict[str, Any]) -> dict[str, Any]:
    """The metadata below the architecture's name."""
    read = {**values, **values.get("attn_config", {})}
    found = {}
    for key, spelled in KEYS.items():
        value = next((read[name] for name in spelled if read.get(name) is not None), None)
        if value is not None:
            found[key] = value
    width, heads = found["embedding_length"], found["attention.head_count"]
    found.setdefault("feed_forward_length", 4 * width)
    if family in ("falcon",) and not values["new_decoder_architecture"]:
        found["attention.head_count_kv"] = 1
    if family == "mpt":
        found["attention.max_alibi_bias"] = float(read["alibi_bias_max"])
    if family == "gpt_oss":
        found["expert_feed_forward_length"] = found["feed_forward_length"]
    if family == "olmo":
        found["attention.layer_norm_epsilon"] = 1e-5
    if family in WINDOWED and values.get("sliding_window"):
        found["attention.sliding_window"] = values["sliding_window"]
    if family in ("exaone4", "olmo3"):
        found["attention.sliding_window_pattern"] = [kind == "sliding_attention" for kind in values["layer_types"]]
    return found | rotary_metadata(family, values, found.get("attention.key_length", width // heads))


def rotary_metadata(family: str, values: dict[str, Any], head_dim: int) -> dict[str, Any]:
    """What the metadata says of the rotation."""
    table = values.get("rope_parameters") or {}
    local = table.get("sliding_attention")
    table = table.get("full_attention", table)
    if not table:
        return {}
    found: dict[str, Any] = {"rope.freq_base": table["rope_theta"]}
    if local:
        found["rope.freq_base_swa"] = local["rope_theta"]
    if "partial_rotary_factor" in table:
        found["rope.dimension_count"] = int(head_dim * table["partial_rotary_factor"])
    elif family in PERMUTED and family != "olmo":
        found["rope.dimension_count"] = head_dim
    kind = table.get("rope_type", "default")
    if kind in ("linear", "yarn"):
        found |= {"rope.scaling.type": kind, "rope.scaling.factor": table["factor"]}
    if "attention_factor" in table:
        found["rope.scaling.attn_factor"] = table["attention_factor"]
    if "original_max_position_embeddings" in table:
        found["rope.scaling.original_context_length"] = table["original_max_position_embeddings"]
    return found


def rotary_tensors(values: dict[str, Any]) -> dict[str, np.ndarray]:
    """The divisors of rotary frequencies, where they are a tensor."""
    table = values.get("rope_parameters") or {}
    kinds = {"rope_factors_short.weight": "short_factor", "rope_factors_long.weight": "long_factor"}
    return {name: np.array(table[key], np.float32) for name, key in kinds.items() if key in table}


def stored(family: str, values: dict[str, Any], weights: dict[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
    """Tensors with their values as the converter leaves them, under names that the name map knows."""
    heads = values.get("num_attention_heads") or values.get("n_head") or values.get("n_heads")
    kv_heads = values.get("num_key_value_heads") or heads
    stacks: dict[str, dict[int, np.ndarray]] = {}
    for name, array in weights.items():
        last = name.split(".")[-2]
        if family in PERMUTED and last in ("q_proj", "k_proj"):
            array = interleaved(array, heads if last == "q_proj" else kv_heads)
        if family in OFFSET and name.endswith("norm.weight"):
            array = array + 1
        if family == "gpt2" and ".c_" in name and name.endswith("weight"):
            array = array.T
        if last == "query_key_value":
            array = ungrouped(array, values, heads)
        if family == "bloom":
            name = name.removeprefix("transformer.")
        if name.endswith("block_sparse_moe.input_linear.weight"):
            halves = dict(zip(("gate", "up"), np.split(array, 2, axis=1), strict=True))
            layer = name.split(".")[2]
            yield from ((f"model.layers.{layer}.mlp.experts.{half}_proj.weight", part) for half, part in halves.items())
        elif name.endswith("sinks") or (family == "gpt_oss" and ".experts." in name):
            yield from gpt_oss(name, array)
        elif ".experts." in name or ".norms." in name:  # one by one in the folder, one tensor in a GGUF
            before, after = name.split(".experts." if ".experts." in name else ".norms.")
            number, _, end = after.partition(".")
            if ".norms." in name:
                merged = f"{before}.{end}"
            elif end.startswith("w"):
                merged = f"layers.{before.split('.')[2]}.feed_forward.experts.{end}"
            else:
                merged = f"{before}.experts.{end}"
            stacks.setdefault(merged, {})[int(number)] = array
        else:
            yield name, array
    for name, parts in stacks.items():
        yield name, np.stack([parts[number] for number in sorted(parts)])


def ungrouped(array: np.ndarray, values: dict[str, Any], heads: int) -> np.ndarray:
    """Groups of queries, a key and a value as all queries, all keys, all values."""
    groups = heads
    if values["model_type"] == "falcon":
        groups = values["num_kv_heads"] if values["new_decoder_architecture"] else 1
    width = array.shape[0] // (heads + 2 * groups)
    parts = array.reshape(groups, heads // groups + 2, width, -1)
    joined = [part.reshape(-1, parts.shape[-1]) for part in (parts[:, :-2], parts[:, -2], parts[:, -1])]
    return np.concatenate(joined).reshape(array.shape)


def gpt_oss(name: str, array: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """The experts' gates and what they multiply apart, outputs before inputs; biases and sinks under names with an end."""
    if name.endswith("sinks"):
        yield f"{name}.weight", array
        return
    bias = name.endswith("_bias")
    name, end = name.removesuffix("_bias"), ".bias" if bias else ".weight"
    array = array if bias else array.swapaxes(-1, -2)
    if "gate_up_proj" in name:
        yield name.replace("gate_up_proj", "gate_proj") + end, array[:, ::2]
        yield name.replace("gate_up_proj", "up_proj") + end, array[:, 1::2]
    else:
        yield name + end, array
