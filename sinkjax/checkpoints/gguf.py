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
from sinkjax.checkpoints.model import Checkpoint
from sinkjax.checkpoints.tensors import Tensor, stored_as
from sinkjax.errors import SinkjaxError, one_of
from sinkjax.model.config import Config
from sinkjax.model.rope import frequencies
from sinkjax.model.rotary import Llama3Scaling, Rope

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
    without a tokenizer. Errors: an architecture, key, scaling kind or tensor that is not understood, each by name.
    """
    where = str(path)
    metadata, tensors = read_gguf(path)
    architecture = str(metadata.get("general.architecture"))
    one_of(f"GGUF architecture in {path}:", architecture, ARCHITECTURES)
    if metadata.get("split.count", 1) not in (0, 1):
        raise SinkjaxError(f"{path} is one part of {metadata['split.count']}; join them first with gguf-split --merge")
    prefix = architecture + "."
    own = {key.removeprefix(prefix): value for key, value in metadata.items() if key.startswith(prefix)}
    rest = {key: value for key, value in metadata.items() if not key.startswith(prefix)}
    vocabulary = rest.get("tokenizer.ggml.tokens")
    values = {
        "vocab_size": len(vocabulary) if isinstance(vocabulary, list) and vocabulary else None,
        **_hf_values(own, where),
        **_implied(architecture, own, tensors),
    }
    config, assumed = read_config(values, where, assume=assume)
    _check_keys(own, rest, config.head_dim, where, {key.removeprefix(prefix) for key in ignore_keys})
    if ROPE_FREQS in tensors:
        config = dataclasses.replace(config, position=_llama3(config, np.asarray(tensors.pop(ROPE_FREQS).array()), where))
    if architecture == "llama":
        heads = {names.GGUF[leaf]: config.heads for leaf in ("q", "q_bias")}
        heads |= {names.GGUF[leaf]: config.kv_heads for leaf in ("k", "k_bias")}
        for pattern, count in heads.items():
            for name in {pattern.format(layer) for layer in range(config.layers)} & tensors.keys():
                tensors[name] = half_split(tensors[name], count)
    tokenizer = None if PRE_TOKENIZER in ignore_keys else read_tokenizer(metadata, where)
    source = {"kind": "gguf", "name": where, "model_type": values["model_type"], "assumed": assumed}
    source |= {"stored": stored_as(tensors)}
    return Checkpoint(where, config, names.GGUF, tensors, tuple(ignore_keys), tokenizer, source)


def half_split(tensor: Tensor, heads: int) -> Tensor:
    """A query or key projection whose rows are in interleaved rotary order, (2i, 2i + 1) a pair, in half-split order.

    llama.cpp's converter reorders the rows of each head of a llama model (no other architecture's), pairing i with i + D / 2 by
    2i, 2i + 1; this undoes it on the stored rows, before they are de-quantised. heads: query heads, or key-value heads for a key.
    """

    def decode(raw: np.ndarray) -> np.ndarray:
        rows = raw.reshape(heads, tensor.shape[0] // heads // 2, 2, -1).swapaxes(1, 2)
        return tensor.decode(rows.reshape(raw.shape))

    return dataclasses.replace(tensor, decode=decode)


def _hf_values(own: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The metadata below the architecture's name as a config.json would say it."""
    values = {to: own[key] for key, to in KEYS.items() if key in own}
    if "rope.dimension_count" in own:
        values.setdefault("head_dim", own["rope.dimension_count"])  # rotary positions cover whole heads here
    return values | {"rope_scaling": _rope_scaling(own, where)}


def _implied(architecture: str, own: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """What a GGUF says by its architecture, and by the tensors that it holds."""
    values = {"hidden_act": "silu", "tie_word_embeddings": names.GGUF["unembed"] not in tensors}
    if architecture == "qwen2":
        return values | {"model_type": "qwen2"}
    if "attention.sliding_window" in own:
        return values | {"model_type": "mistral"}
    attention_bias, mlp_bias = (names.GGUF[leaf].format(0) in tensors for leaf in ("q_bias", "up_bias"))
    return values | {"model_type": "llama", "attention_bias": attention_bias, "mlp_bias": mlp_bias}


def _rope_scaling(own: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The `rope_scaling` table; llama.cpp's kinds are none, linear and yarn, and old files have only `rope.scale_linear`."""
    linear = {"factor": own["rope.scale_linear"]} if "rope.scale_linear" in own else {}
    kind = own.get("rope.scaling.type", "linear" if linear else "none")
    one_of(f"rope.scaling.type in {where}:", kind, ("none", "linear", "yarn"))
    table = linear | {to: own[key] for key, to in SCALING_KEYS.items() if key in own}
    if kind == "linear":
        table.pop("original_max_position_embeddings", None)  # stated by converters, without a part in the formula
    return {} if kind == "none" else {"rope_type": kind, **table}


def _check_keys(own: Mapping[str, Any], rest: Mapping[str, Any], head_dim: int, where: str, ignored: Collection[str]) -> None:
    """Refuse metadata that is not understood, heads of two widths, rotary positions on a part of a head, YaRN's own factor.

    own, rest: metadata below the architecture's name (taken off) and beside it. ignored: keys as they stand in either.
    """
    fields = Fields(own, where, read={"rope.scaling.type", "rope.scale_linear", *KEYS, *SCALING_KEYS})
    for key in ("attention.value_length", "rope.dimension_count"):
        fields.fixed(key, head_dim)
    fields.fixed("rope.scaling.attn_factor", 1.0)
    fields.finish(INERT | set(ignored))
    Fields({key: value for key, value in rest.items() if not key.startswith(OTHER_NAMESPACES)}, where).finish(ignored)


def _llama3(config: Config, divisors: np.ndarray, where: str) -> Rope:
    """The position record behind a `rope_freqs.weight`: what each rotary frequency is divided by (float32 [head_dim / 2]).

    The file does not say how they were computed. Every released Llama 3.1 to 3.3 has the same constants but for the factor, the
    largest divisor; the result is checked against the whole tensor, and refused if any divisor differs.
    """
    plain = config.rope
    scaled = Rope(plain.theta, Llama3Scaling(float(divisors.max()), 1.0, 4.0, 8192))
    lengths, dtype = jnp.ones(1), jnp.dtype("float32")
    before, after = (np.asarray(frequencies(rope, config.head_dim, lengths, dtype)[0][0]) for rope in (plain, scaled))
    same = divisors.shape == before.shape and np.allclose(divisors, before / after, rtol=1e-5, atol=0)
    if plain.scaling is not None or not same:
        raise SinkjaxError(f"{ROPE_FREQS} of {where} is not a Llama 3 scaling (any factor, 1, 4, 8192), the only one supported")
    return scaled
