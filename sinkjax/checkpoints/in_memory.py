"""Models in memory: conversion from transformers models and from arrays named as in files, and back to arrays.

These are checkpoints whose tensors are arrays, read with the same tables and checks as files. PyTorch is never imported: its
tensors are passed by DLPack.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from sinkjax.checkpoints import native
from sinkjax.checkpoints.adapters import refuse_live
from sinkjax.checkpoints.export import under_names
from sinkjax.checkpoints.family import known
from sinkjax.checkpoints.folder import family_checkpoint
from sinkjax.checkpoints.hf_config import CODE
from sinkjax.checkpoints.load import check_left_out, load_checkpoint
from sinkjax.checkpoints.model import Checkpoint, Model, check_model
from sinkjax.checkpoints.names import Table, leaf_name
from sinkjax.checkpoints.tensors import INTEGERS, Tensor, stored_as
from sinkjax.checkpoints.tokenizer import Tokenizer, copied, read_json
from sinkjax.checkpoints.verification import compare, refuse_different
from sinkjax.config_files.checks import refuse
from sinkjax.config_files.files import user_path
from sinkjax.errors import short
from sinkjax.model import params
from sinkjax.model.batch import dense, is_torch
from sinkjax.model.config import Config
from sinkjax.runtime import extras
from sinkjax.runtime.settings import fixed_settings


@fixed_settings
def from_transformers(
    model: Any,
    tokenizer: Any = None,
    dtype: str | None = None,
    ignore_keys: Collection[str] = (),
    assume: Mapping[str, Any] | None = None,
    check: bool = True,
    verify: bool = True,
) -> Model:
    """Convert a causal language model of transformers, of any supported family, in memory without using the disk.

        live = transformers.AutoModelForCausalLM.from_pretrained("gpt2")
        model = sinkjax.from_transformers(live, transformers.AutoTokenizer.from_pretrained("gpt2"))
        tokens, lengths = sinkjax.encode(model, ["The key to the cabinet"])
        out = sinkjax.forward(model, tokens, edits=sinkjax.mask_key(0), lengths=lengths)
        print(out.record["attention_received"][0, :, :, 0])

    A tensor that becomes a leaf unchanged (an embedding, a position table, the last norm) shares its memory with the leaf if
    dtype and device are equal, so do not change it in place while it exists. Tensors of layers are stacked and therefore copied.

    Only the config and the weights are converted. Eight tokens are run through both models to detect anything else: hooks,
    patched or replaced modules, changed settings of modules, adapters.

    Args:
        model: A `transformers.PreTrainedModel` with its unembedding, on any device.
        tokenizer: A fast tokenizer of transformers, or of a sinkjax model; with None, the model accepts only token ids.
        dtype: Dtype of all parameters, as for `sinkjax.load`; None for the dtype that most numbers in the model have.
        ignore_keys: Config keys and tensor names to ignore deliberately, as for `sinkjax.load`.
        assume: Values for config keys that the model's config omits.
        check: Whether NaN or infinite weights are an error.
        verify: Whether it is an error if the numbers differ from transformers' on eight tokens. They are computed in float32 if
            such a copy fits into memory.

    Returns:
        The model, with its parameters in the tree of `params.abstract(config)`; its `sha256` is the same as from files.

    Raises:
        SinkjaxError: The model is of another type, or its family is unknown; a config key or tensor (which is named) is missing,
            unknown, of the wrong shape, or without data (on the meta device); the tokenizer has no fast form; the model gives
            different numbers in transformers, or does not run there.
    """
    extras.require("from_transformers", "hub", "transformers")
    import transformers

    refuse_live(model)
    other = not isinstance(model, transformers.PreTrainedModel)
    refuse(other, f"from_transformers takes a PreTrainedModel of transformers, not {short(model)}")
    ignore_keys, kind = check_left_out(ignore_keys, assume), type(model).__name__
    headless = model.get_output_embeddings() is None
    refuse(headless, f"a {kind} has no unembedding: load the model with transformers.AutoModelForCausalLM")
    values = json.loads(model.config.to_json_string())  # what save_pretrained writes
    if type(model).__module__.startswith("transformers.models."):
        values.pop(CODE, None)  # code that this model does not run
    from transformers.core_model_loading import revert_weight_conversion

    def tensors() -> dict[str, Tensor]:
        stored = revert_weight_conversion(model, model.state_dict())  # names and shapes as in files: experts one by one
        return {name: as_tensor(value, f"{name} of this {kind}") for name, value in stored.items()}

    revision, named = getattr(model.config, "_commit_hash", None), (f"this {kind}", f"the config of this {kind}")
    source = {"kind": "transformers", "name": model.name_or_path or kind, "revision": revision}
    read = family_checkpoint(values, named, source, tensors, lambda _: as_tokenizer(tokenizer), ignore_keys, assume)
    made = load_checkpoint(read, as_dtype(dtype, read.tensors), check=check)
    if verify:
        refuse_different(compare(model, made, lambda: load_checkpoint(read, "float32", check=check)), model)
    return made


@fixed_settings
def from_arrays(
    config: Config | Mapping[str, Any] | str | Path | Any,
    arrays: Mapping[str, Any],
    family: str | None = None,
    tokenizer: Any = None,
    dtype: str | None = None,
    ignore_keys: Collection[str] = (),
    assume: Mapping[str, Any] | None = None,
    check: bool = True,
) -> Model:
    """Make a model from a config and arrays, with the names and shapes of Hugging Face files.

        arrays = safetensors.numpy.load_file("model.safetensors")
        model = sinkjax.from_arrays("config.json", arrays)
        changed = sinkjax.to_arrays(model)
        changed["model.layers.0.mlp.down_proj.weight"] *= 0
        without = sinkjax.from_arrays(model.config, changed, family="llama")

    Args:
        config: A config.json as a mapping, or its path or that of its folder; a config of transformers; or a `sinkjax.Config`.
        arrays: Tensor name -> floating-point array from NumPy, JAX or PyTorch. Linear layers are [outputs, inputs], except in
            families that store them differently, such as GPT-2.
        family: The model type whose names are used, if the config does not state it. With a `sinkjax.Config`, None means the
            paths and shapes of sinkjax's own leaves ("layers.q").
        tokenizer: See `from_transformers`.
        dtype: Dtype of all parameters, as for `sinkjax.load`; None for the dtype that most numbers in the arrays have.
        ignore_keys: Config keys and tensor names to ignore deliberately, as for `sinkjax.load`.
        assume: Values for config keys that the config omits; not allowed with a `sinkjax.Config`.
        check: Whether NaN or infinite weights are an error.

    Returns:
        The model. JAX and PyTorch arrays that become leaves unchanged are shared, as in `from_transformers`; NumPy arrays are
        copied.

    Raises:
        SinkjaxError: A config key or tensor is missing, unknown or of the wrong shape (the leaf and both shapes are named); an
            array does not hold floating-point numbers; the family is unknown, or not that of the config.
    """
    refuse(not isinstance(arrays, Mapping), f"arrays must be a mapping from tensor names to arrays, not {short(arrays)}")
    ignore_keys, own_tokenizer, where = check_left_out(ignore_keys, assume), as_tokenizer(tokenizer), "these arrays"
    tensors = {str(name): as_tensor(value, f"{name} of {where}") for name, value in arrays.items()}
    source: dict[str, Any] = {"kind": "arrays", "name": "arrays"}
    if isinstance(config, Config):
        refuse(bool(assume), "assume fills gaps of a config.json, and a sinkjax.Config has none")
        source |= {"model_type": family or native.MODEL_TYPE, "assumed": {}, "stored": stored_as(tensors)}
        read = Checkpoint(where, config, table(family, config), tensors, ignore_keys, own_tokenizer, source)
    else:
        values, named = config_values(config, family), (where, "the config")
        read = family_checkpoint(values, named, source, lambda: tensors, lambda _: own_tokenizer, ignore_keys, assume)
    return load_checkpoint(read, as_dtype(dtype, read.tensors), check=check)


@fixed_settings
def to_arrays(model: Model, family: str | None = None) -> dict[str, np.ndarray]:
    """Return a model's weights with the names and shapes of Hugging Face files.

        model = sinkjax.load("smollm2-135m")
        arrays = sinkjax.to_arrays(model)
        live = transformers.LlamaForCausalLM(transformers.LlamaConfig(...))
        live.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()}, strict=False)
        live.tie_weights()

    Args:
        model: The model.
        family: The model type whose names to use; None for the model's own, or the paths of the leaves if no family describes it
            ("sinkjax").

    Returns:
        Tensor name -> new array in the dtype of the parameters; `from_arrays` reconstructs the same model, bit for bit. A tied
        unembedding is not included.

    Raises:
        SinkjaxError: The parameters do not fit the config; the family is unknown, or has no name for one of the leaves.
    """
    check_model(model)
    params.check(model.params, model.config)
    names = table(family or model.source.get("model_type"), model.config)
    host = {leaf_name(path): np.asarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(model.params)}
    return under_names(host, model.config, names)


def table(family: str | None, config: Config) -> Table | None:
    """Return a family's tensor names; None for the leaves' own names. Errors: an unknown family, or one that lacks a leaf's
    name."""
    if family in (None, native.MODEL_TYPE):
        return None
    names = known(str(family)).names(config)
    for path, _ in jax.tree_util.tree_leaves_with_path(params.abstract(config)):
        refuse(path[-1].key not in names, f"the config asks for {leaf_name(path)}, but {family} has no tensor for it")
    return names


def config_values(config: Any, family: str | None) -> dict[str, Any]:
    """Return a config.json's values. Errors: not a config; a family that is unknown or contradicts the config."""
    if isinstance(config, str | Path):
        path = user_path(config)
        values = read_json(path / "config.json" if path.is_dir() else path)
    elif hasattr(config, "to_json_string"):
        values = json.loads(config.to_json_string())
    else:
        other = not isinstance(config, Mapping)
        refuse(other, f"a config is a config.json's mapping or path, or a sinkjax.Config, not {short(config)}")
        values = dict(config)
    if family is not None:
        known(str(family))
        stated = values.setdefault("model_type", family)
        refuse(stated != family, f"family={family!r} contradicts the config, which states model_type {stated!r}")
    return values


def as_tensor(value: Any, what: str) -> Tensor:
    """Wrap an array in memory as a stored tensor; `what` names it in errors. PyTorch arrays share their memory if JAX can.

    Integers and booleans may be buffers; `stream.check_names` refuses them as weights."""
    of_torch = is_torch(value)
    array: Any = dense(what, value) if of_torch else value if isinstance(value, jax.Array) else np.asarray(value)
    kind = str(array.dtype).removeprefix("torch.")
    other = kind not in (*params.DTYPES, *INTEGERS)
    refuse(other, f"{what} holds {kind}, not floating-point numbers ({', '.join(params.DTYPES)})")
    if of_torch:
        array = array if array.device.type == "cuda" and jax.default_backend() == "gpu" else array.cpu()
        shared = kind != "bool" and jax.dtypes.canonicalize_dtype(kind) == kind
        array = jax.dlpack.from_dlpack(array.contiguous()) if shared else array.cpu().numpy()
    numbers = np.ascontiguousarray(array)
    raw, decode = numbers.reshape(-1).view(np.uint8), partial(np.ndarray.view, dtype=numbers.dtype)
    return Tensor(tuple(array.shape), lambda: raw, decode, kind, array if isinstance(array, jax.Array) else None)


def as_dtype(dtype: str | None, tensors: Mapping[str, Tensor]) -> str:
    """Return the requested dtype, by default the dtype of most numbers. Errors: parameters cannot have it."""
    dtype = dtype or stored_as(tensors) or "float32"  # without tensors, a later error names the first missing one
    params.check_dtype(dtype)
    return dtype


def as_tokenizer(tokenizer: Any) -> Tokenizer | None:
    """Convert a tokenizer of transformers to an independent copy here."""
    if tokenizer is None or isinstance(tokenizer, Tokenizer):
        return tokenizer
    backend: Any = getattr(tokenizer, "backend_tokenizer", None)
    slow = f"a tokenizer must be a fast one of transformers, or of a sinkjax model, not {short(tokenizer)}"
    refuse(backend is None, slow)
    template = getattr(tokenizer, "chat_template", None)
    known = template if isinstance(template, str) else None
    return Tokenizer(copied(backend), tokenizer.bos_token_id, tokenizer.eos_token_id, known)
