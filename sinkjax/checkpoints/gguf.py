"""A GGUF file as a checkpoint: its metadata in the words of a Hugging Face config, its tensors in Hugging Face layout."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from sinkjax.checkpoints import names
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.gguf_file import read_gguf
from sinkjax.checkpoints.gguf_tokenizer import read_tokenizer
from sinkjax.checkpoints.hf_config import read_config
from sinkjax.checkpoints.tensors import Checkpoint, Tensor
from sinkjax.errors import SinkjaxError, one_of
from sinkjax.model.config import Config, Llama3Scaling, Rope
from sinkjax.model.rope import frequencies

ARCHITECTURES = ("llama", "qwen2")

# Metadata key below the architecture's own name -> config.json key.
KEYS = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.sliding_window": "sliding_window",
    "rope.freq_base": "rope_theta",
    "vocab_size": "vocab_size",
}
SCALING_KEYS = {
    "rope.scaling.factor": "factor",
    "rope.scaling.original_context_length": "original_max_position_embeddings",
    "rope.scaling.yarn_beta_fast": "beta_fast",
    "rope.scaling.yarn_beta_slow": "beta_slow",
}
INERT = frozenset({"rope.scaling.finetuned", "tensor_data_layout"})
OTHER_NAMESPACES = ("general.", "tokenizer.", "quantize.", "split.")
ROPE_FREQS = "rope_freqs.weight"
PRE_TOKENIZER = "tokenizer.ggml.pre"


def read_gguf_checkpoint(path: Path, ignore_keys: Collection[str] = (), assume: Mapping[str, Any] | None = None) -> Checkpoint:
    """A `.gguf` file of architecture llama (Mistral included) or qwen2.

    ignore_keys, assume: as in `load.load`; `assume` speaks of config.json keys, and ignoring `tokenizer.ggml.pre` loads the model
    without a tokenizer. Errors: an architecture, key, scaling kind or
    tensor that is not understood, each by name.
    """
    metadata, tensors = read_gguf(path)
    architecture = str(metadata.get("general.architecture"))
    one_of(f"GGUF architecture in {path}:", architecture, ARCHITECTURES)
    if metadata.get("split.count", 1) not in (0, 1):
        raise SinkjaxError(f"{path} is one part of {metadata['split.count']}; join them first with gguf-split --merge")
    own = {key.removeprefix(architecture + "."): value for key, value in metadata.items() if key.startswith(architecture + ".")}
    values = _hf_values(own, metadata, tensors, architecture, path)
    config, assumed = read_config(values, str(path), assume=assume)
    _check_keys(own, metadata, config.head_dim, architecture, path, ignore_keys)
    if ROPE_FREQS in tensors:
        config = dataclasses.replace(config, position=_llama3(config, tensors.pop(ROPE_FREQS).array(), path))
    if architecture == "llama":
        heads = {names.GGUF[leaf]: config.heads for leaf in ("q", "q_bias")}
        heads |= {names.GGUF[leaf]: config.kv_heads for leaf in ("k", "k_bias")}
        for pattern, count in heads.items():
            for name in {pattern.format(layer) for layer in range(config.layers)} & tensors.keys():
                tensors[name] = half_split(tensors[name], count)
    tokenizer = None if PRE_TOKENIZER in ignore_keys else read_tokenizer(metadata, str(path))
    source = {"kind": "gguf", "name": str(path), "model_type": values["model_type"], "assumed": assumed}
    return Checkpoint(str(path), config, names.GGUF, tensors, tuple(ignore_keys), tokenizer, source)


def half_split(tensor: Tensor, heads: int) -> Tensor:
    """A query or key projection whose rows are in interleaved rotary order, (2i, 2i + 1) a pair, in half-split order.

    llama.cpp's converter reorders the rows of each head of a llama model (no other architecture's), pairing i with i + D / 2 by
    2i, 2i + 1; this undoes it on the stored rows, before they are de-quantised. heads: query heads, or key-value heads for a key.
    """
    if tensor.shape[0] % (2 * heads):
        raise SinkjaxError(f"{tensor.shape[0]} rows of a rotary projection cannot be {heads} heads of even width")

    def decode(raw: np.ndarray) -> np.ndarray:
        rows = raw.reshape(heads, tensor.shape[0] // heads // 2, 2, -1).swapaxes(1, 2)
        return tensor.decode(rows.reshape(raw.shape))

    return dataclasses.replace(tensor, decode=decode)


def _hf_values(
    own: Mapping[str, Any], metadata: Mapping[str, Any], tensors: Mapping[str, Tensor], architecture: str, path: Path
) -> dict[str, Any]:
    """The metadata as a config.json would say it; what a GGUF leaves to its architecture (activation, biases) is filled in.

    own: the metadata below the architecture's name, without that prefix.
    """
    values = {to: own[key] for key, to in KEYS.items() if key in own}
    if "rope.dimension_count" in own:
        values.setdefault("head_dim", own["rope.dimension_count"])  # rotary positions cover whole heads here
    values.setdefault("vocab_size", len(metadata.get("tokenizer.ggml.tokens", ())) or None)
    values |= {
        "hidden_act": "silu",
        "rope_scaling": _rope_scaling(own, path),
        "tie_word_embeddings": names.GGUF["unembed"] not in tensors,
    }
    if architecture == "qwen2":
        return values | {"model_type": "qwen2"}
    if "sliding_window" in values:
        return values | {"model_type": "mistral"}
    biased = {
        flag: names.GGUF[leaf].format(0) in tensors for flag, leaf in (("attention_bias", "q_bias"), ("mlp_bias", "up_bias"))
    }
    return values | biased | {"model_type": "llama"}


def _rope_scaling(own: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The `rope_scaling` table; llama.cpp's kinds are none, linear and yarn, and old files have only `rope.scale_linear`."""
    linear = {"factor": own["rope.scale_linear"]} if "rope.scale_linear" in own else {}
    kind = own.get("rope.scaling.type", "linear" if linear else "none")
    one_of(f"rope.scaling.type in {path}:", kind, ("none", "linear", "yarn"))
    table = linear | {to: own[key] for key, to in SCALING_KEYS.items() if key in own}
    if kind == "linear":
        table.pop("original_max_position_embeddings", None)  # stated by converters, without a part in the formula
    return {} if kind == "none" else {"rope_type": kind, **table}


def _check_keys(
    own: Mapping[str, Any],
    metadata: Mapping[str, Any],
    head_dim: int,
    architecture: str,
    path: Path,
    ignore_keys: Collection[str],
) -> None:
    """Refuse metadata that is not understood, heads of two widths, rotary positions on a part of a head, YaRN's own factor."""
    fields = Fields(own, str(path), read={"rope.scaling.type", "rope.scale_linear", *KEYS, *SCALING_KEYS})
    for key in ("attention.value_length", "rope.dimension_count"):
        fields.fixed(key, head_dim)
    fields.fixed("rope.scaling.attn_factor", 1.0)
    ignored = {key.removeprefix(architecture + ".") for key in ignore_keys}
    fields.finish(INERT | ignored)
    rest = {key: value for key, value in metadata.items() if not key.startswith((architecture + ".", *OTHER_NAMESPACES))}
    Fields(rest, str(path)).finish(ignore_keys)


def _llama3(config: Config, divisors: np.ndarray, path: Path) -> Rope:
    """The position record behind a `rope_freqs.weight`: what each rotary frequency is divided by (float32 [head_dim / 2]).

    The file does not say how they were computed. Every released Llama 3.1 to 3.3 has the same constants but for the factor, the
    largest divisor; the result is checked against the whole tensor, and refused if any divisor differs.
    """
    plain = config.position
    scaled = Rope(plain.theta, Llama3Scaling(float(divisors.max()), 1.0, 4.0, 8192))
    before, after = (
        np.asarray(frequencies(rope, config.head_dim, jnp.ones(1), jnp.dtype("float32"))[0][0]) for rope in (plain, scaled)
    )
    if (
        plain.scaling is not None
        or divisors.shape != before.shape
        or not np.allclose(divisors, before / after, rtol=1e-5, atol=0)
    ):
        raise SinkjaxError(f"{ROPE_FREQS} of {path} is not a Llama 3 scaling (any factor, 1, 4, 8192), the only one supported")
    return scaled
