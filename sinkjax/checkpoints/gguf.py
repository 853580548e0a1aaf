"""A GGUF file as a checkpoint: its metadata as a Hugging Face config, its tensors in Hugging Face layout.

Each family has a table of its format in llama.cpp (`Family.gguf`), which this module uses to read a file.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from gguf import LlamaFileType

from sinkjax.checkpoints.family import as_many_as_heads, families
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.gguf_family import Gguf, GgufFile
from sinkjax.checkpoints.gguf_file import read_gguf
from sinkjax.checkpoints.gguf_tokenizer import read_tokenizer
from sinkjax.checkpoints.hf_config import read_config, refuse_unsupported
from sinkjax.checkpoints.hf_rope import ORIGINAL
from sinkjax.checkpoints.model import Checkpoint
from sinkjax.checkpoints.names import Table
from sinkjax.checkpoints.presets import PLAIN
from sinkjax.checkpoints.tensors import Tensor, stored_as
from sinkjax.config_files.checks import refuse
from sinkjax.errors import SinkjaxError, one_of, short
from sinkjax.model.config import Config
from sinkjax.model.rope import frequencies
from sinkjax.model.rotary import Rope

# Metadata key below the architecture's own name -> config.json key, unless a family's table says otherwise.
KEYS: dict[str, str | None] = {
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
# What llama.cpp takes for a key of a config.json that a file states under no key.
DEFAULTS: dict[str, Any] = {"rope_theta": 10000.0, "num_key_value_heads": as_many_as_heads, "rope_scaling": {}}
# Factors whose 0 means that there is none, as in llama.cpp.
FACTORS = ("attention_multiplier", "clip_qkv", "embedding_multiplier", "logit_scale", "logits_scaling", "residual_multiplier")
# Keys below "general" that name the model, or the one that it was made from.
NAMES = ("name", "basename", "finetune", "base_model.0.name", "source.huggingface.repository")
SCALING_KEYS = {
    "rope.scaling.factor": "factor",
    "rope.scaling.original_context_length": ORIGINAL,
    "rope.scaling.yarn_beta_fast": "beta_fast",
    "rope.scaling.yarn_beta_slow": "beta_slow",
}
ATTENTION_FACTOR = "rope.scaling.attn_factor"
INERT = frozenset({"rope.scaling.finetuned", "tensor_data_layout"})
ROPE_FREQS = "rope_freqs.weight"
LONG_FACTORS = {"short_factor": "rope_factors_short.weight", "long_factor": "rope_factors_long.weight"}
LLAMA3 = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
PRE_TOKENIZER = "tokenizer.ggml.pre"


def read_gguf_checkpoint(
    path: Path | Sequence[Path], ignore_keys: Collection[str] = (), assume: Mapping[str, Any] | None = None
) -> Checkpoint:
    """Read a GGUF file of a family that llama.cpp supports, without its weights.

    Args:
        path: The file, or its pieces in order.
        ignore_keys: See `load.load`; ignoring `tokenizer.ggml.pre` loads the model without a tokenizer.
        assume: See `load.load`, with config.json keys; it also replaces settings that the architecture only implies, such as an
            activation.

    Returns:
        The checkpoint.

    Raises:
        SinkjaxError: An architecture, key, scaling kind or tensor is not understood (it is named).
    """
    paths = [path] if isinstance(path, Path) else list(path)
    where = str(paths[0])
    metadata, tensors = read_gguf(*paths)
    if metadata.get("split.count", 1) not in (0, 1):
        raise SinkjaxError(f"{where} is one part of {metadata['split.count']}; join them first with gguf-split --merge")
    kind = metadata.get("general.type", "model")
    refuse(kind != "model", f"{where} is not a model: its general.type is {short(kind)}")
    architecture = str(metadata.get("general.architecture"))
    known = [(family, family.gguf) for family in families().values() if family.gguf]
    refuse_unsupported("GGUF architecture", architecture, {layout.architecture for _, layout in known}, where)
    prefix = f"{architecture}."
    own = {key.removeprefix(prefix): value for key, value in metadata.items() if key.startswith(prefix)}
    assume = dict(assume or {})
    own |= {key: assume[to] for key, to in KEYS.items() if to in assume and key not in own}
    file = GgufFile(own, tensors, " ".join(str(metadata.get(f"general.{key}", "")) for key in NAMES))
    of_architecture = [(family, layout) for family, layout in known if layout.architecture == architecture]
    family, layout = next(pair for pair in of_architecture if pair[1].suits(file))  # several share the architecture llama
    for key, reason in layout.unstated(file).items():
        wanted = f"{where} does not state {key!r}: {reason}; load(..., assume={{{key!r}: ...}}) supplies it"
        refuse(key not in assume, wanted)
    ignored = {key.removeprefix(prefix) for key in ignore_keys}
    stated = _hf_values(file, layout, metadata.get("tokenizer.ggml.tokens"), where, ignored)
    values = layout.implications(file, family.defaults, assume) | {"tie_word_embeddings": not file.has("unembed")} | stated
    values = {key: value for key, value in values.items() if key not in assume or value != assume[key]}
    config, assumed = read_config({**values, "model_type": family.model_type}, where, (), assume, DEFAULTS)
    if ROPE_FREQS in tensors:
        _check_divisors(config, np.asarray(tensors[ROPE_FREQS].array()), where)
    table = layout.names(file)
    left = {name: tensor for name, tensor in tensors.items() if name not in (ROPE_FREQS, *LONG_FACTORS.values())}
    tokenizer = None if PRE_TOKENIZER in ignore_keys else read_tokenizer(metadata, where)
    stored = _stored(metadata, left)
    source = {"kind": "gguf", "name": where, "model_type": family.model_type, "assumed": assumed, "stored": stored}
    return Checkpoint(where, config, table, _hf_tensors(left, layout, table, config), tuple(ignore_keys), tokenizer, source)


def _hf_values(file: GgufFile, layout: Gguf, vocabulary: Any, where: str, ignored: Collection[str]) -> dict[str, Any]:
    """Return the settings that a file states under the keys of a config.json. Errors: metadata that is not understood, by key."""
    own, keys = file.own, {**KEYS, **layout.keys}
    fields = Fields(own, where, read={*keys, "rope.scaling.type", "rope.scale_linear", *SCALING_KEYS}, ignored=ignored)
    stated = {to: own[key] for key, to in keys.items() if to is not None and key in own and (own[key] != 0 or to not in FACTORS)}
    if stated.get("sliding_window") == 0:
        stated["sliding_window"] = None  # none, as llama.cpp takes it
    if "vocab_size" not in stated and isinstance(vocabulary, list) and vocabulary:
        stated["vocab_size"] = len(vocabulary)
    head_dim = _head_dim(fields, file, keys, stated)
    for key, only in {"expert_count": 0, "attention.causal": True, **layout.fixed}.items():
        if key not in keys:
            fields.fixed(key, float(np.float32(only)) if isinstance(only, float) else only)  # as in a file
    stated |= _rotation(fields, file, layout, head_dim)
    fields.finish(INERT)
    return stated


def _head_dim(fields: Fields, file: GgufFile, keys: Mapping[str, str | None], stated: dict[str, Any]) -> int | None:
    """The width of a head, put into `stated` if the family's config has it; None if the heads are not a number. Errors: values of
    another width, or, in a family without key-value heads of their own, another number of these than of heads."""
    heads, width, given = (file.own.get(key) for key in ("attention.head_count", "embedding_length", "attention.key_length"))
    fields.read |= {"attention.value_length", "rope.dimension_count"}
    if type(heads) is not int or type(width) is not int or heads < 1:
        return None
    even = width // heads if width % heads == 0 else None
    if keys["attention.key_length"] is None:
        fields.fixed("attention.key_length", even)
    elif given is None and even:
        stated["head_dim"] = even
    if keys["attention.head_count_kv"] is None:
        fields.fixed("attention.head_count_kv", heads)
    head_dim = even if given is None else given
    fields.fixed("attention.value_length", head_dim)
    return head_dim


def _rotation(fields: Fields, file: GgufFile, layout: Gguf, head_dim: int | None) -> dict[str, Any]:
    """The keys of a config.json that state the rotation: what part of a head it covers, and how it is scaled.

    llama.cpp's kinds of scaling are "none", linear, yarn and longrope; old files have only `rope.scale_linear`, and Llama 3's and
    LongRoPE's divisors are tensors.
    """
    own, where, tensors = file.own, fields.where, file.tensors
    rotation: dict[str, Any] = {}
    if layout.partial and head_dim and fields.stated("rope.dimension_count"):
        factor = fields.integer("rope.dimension_count", high=head_dim) / head_dim
        rotation["partial_rotary_factor"] = math.nextafter(factor, 1.0)  # so that the product is not rounded down
    elif head_dim:
        fields.fixed("rope.dimension_count", head_dim)
    long = {key: name for key, name in LONG_FACTORS.items() if name in tensors}
    kind = "longrope" if long else own.get("rope.scaling.type", "linear")
    one_of(f"rope.scaling.type in {where}:", kind, ("none", "linear", "yarn", "longrope"))
    table = {to: own[key] for key, to in SCALING_KEYS.items() if key in own}
    table["factor"] = own.get("rope.scaling.factor", own.get("rope.scale_linear", 0)) or 1  # 0 means none
    if kind == "longrope":
        refuse(table.pop("factor") != 1, f"{where} scales its rotation twice: by {', '.join(long.values())}, and by a factor")
        table |= {key: np.asarray(tensors[name].array(), float).tolist() for key, name in long.items()}
        rotation |= {ORIGINAL: table.pop(ORIGINAL)} if ORIGINAL in table else {}
    else:
        kind = "none" if table["factor"] == 1 else kind
    if kind == "longrope" or ATTENTION_FACTOR in layout.keys:
        fields.read.add(ATTENTION_FACTOR)
        table |= {"attention_factor": own[ATTENTION_FACTOR]} if ATTENTION_FACTOR in own else {}
    else:
        fields.fixed(ATTENTION_FACTOR, 1.0)
    if kind == "linear":
        table.pop(ORIGINAL, None)  # stated by converters, without a part in the formula
    if ROPE_FREQS in tensors:
        refuse(kind != "none", f"{where} scales its rotation twice: by {ROPE_FREQS}, and by rope.scaling.type {kind}")
        return rotation | {"rope_scaling": {**LLAMA3, "factor": float(np.max(tensors[ROPE_FREQS].array(), initial=1.0))}}
    return rotation | ({} if kind == "none" else {"rope_scaling": {"rope_type": kind, **layout.rope, **table}})


def _check_divisors(config: Config, divisors: np.ndarray, where: str) -> None:
    """Raise unless the divisors of rotary frequencies in `rope_freqs.weight` (float32 [head_dim / 2]) are the config's scaling.

    The file does not say how they were computed. Every released Llama 3.1 to 3.3 has the same constants except the factor, the
    largest divisor.
    """
    lengths, dtype = jnp.ones(1), jnp.dtype("float32")
    for scaled in config.ropes:
        plain = Rope(scaled.theta, dims=scaled.dims)
        before, after = (np.asarray(frequencies(rope, config.head_dim, lengths, dtype)[0][0]) for rope in (plain, scaled))
        same = divisors.shape == before.shape and np.allclose(divisors, before / after, rtol=1e-5, atol=0)
        refuse(not same, f"{ROPE_FREQS} of {where} is not a Llama 3 scaling (any factor, 1, 4, 8192), the only one supported")


def _hf_tensors(tensors: Mapping[str, Tensor], layout: Gguf, table: Table, config: Config) -> dict[str, Tensor]:
    """The tensors of a file with their values and their order of rows as Hugging Face files have them."""
    converted = dict(tensors)
    if layout.interleaved:
        heads = {"q": config.heads, "q_bias": config.heads, "k": config.kv_heads, "k_bias": config.kv_heads}
        for leaf, count in heads.items():
            for name in {str(table[leaf]).format(layer) for layer in range(config.layers)} & converted.keys():
                converted[name] = half_split(converted[name], count)
    for name, tensor in converted.items():
        if layout.offset_norms and name.endswith("norm.weight"):
            converted[name] = dataclasses.replace(tensor, decode=partial(_without_offset, tensor.decode))
        elif name.endswith(("_q_norm.weight", "_k_norm.weight")):  # a norm per head, as rows; here they are concatenated
            converted[name] = dataclasses.replace(tensor, shape=(math.prod(tensor.shape),), part=None)
    return converted


def _without_offset(decode: Callable[[np.ndarray], np.ndarray], raw: np.ndarray) -> np.ndarray:
    """Return gains whose 1 was added before they were stored; float64, so that they are rounded once."""
    return decode(raw).astype(np.float64) - 1


def half_split(tensor: Tensor, heads: int) -> Tensor:
    """A query or key projection whose rows are in interleaved rotary order, (2i, 2i + 1) a pair, in half-split order.

    llama.cpp's converter reorders the rows of each head in some families, pairing i with i + D / 2 by 2i, 2i + 1; this undoes it
    on the stored rows, before they are de-quantised. heads: query heads, or key-value heads for a key.
    """

    def decode(raw: np.ndarray) -> np.ndarray:
        rows = raw.reshape(heads, tensor.shape[0] // heads // 2, 2, -1).swapaxes(1, 2)
        return tensor.decode(rows.reshape(raw.shape))

    return dataclasses.replace(tensor, decode=decode)


def _stored(metadata: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str | None:
    """The type that a file of mixed quantisation names as its own ("Q4_K_M"), else the type of most of its numbers."""
    most, stated = stored_as(tensors), metadata.get("general.file_type")
    quantised = most is not None and most.lower() not in PLAIN
    names = {kind.value: kind.name.removeprefix("MOSTLY_") for kind in LlamaFileType}
    return names.get(stated, most) if quantised and type(stated) is int else most
