"""sinkjax's own folder format, for models with any `Config`.

    config.json             "model_type": "sinkjax", and every field of the config, a record tagged by the name of its class
    model.safetensors       the leaves of the parameter tree, unchanged, by path ("layers.q")
    tokenizer.json, tokenizer_config.json    as in a Hugging Face folder, if the model has a tokenizer
    README.md               the card: the model's description and origin
    sinkjax-checksums.json  sizes and checksums of the others; `load` checks all but the card

Files and records are read by the annotations of `Config`, so a new option needs no change here. A field that a file lacks has its
default, because it was added to `Config` after the file was written; a field that was renamed since then is read too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from sinkjax.checkpoints.model import Checkpoint, check_model
from sinkjax.checkpoints.names import leaf_name
from sinkjax.checkpoints.safetensors import write_safetensors
from sinkjax.checkpoints.tensors import Tensor, stored_as
from sinkjax.checkpoints.tokenizer import SETTINGS, TOKENIZER, read_json, write_folder_tokenizer
from sinkjax.checkpoints.tokenizer_files import read_folder_tokenizer
from sinkjax.config_files import documents
from sinkjax.config_files.checks import refuse
from sinkjax.config_files.checksums import SUMS, write_checksums
from sinkjax.config_files.files import attempt, own_folder, user_path, whole_folder
from sinkjax.model import params
from sinkjax.model.config import FORMER, Config

if TYPE_CHECKING:
    from sinkjax.checkpoints.model import Model

MODEL_TYPE = "sinkjax"
CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
FILES = (CONFIG, WEIGHTS, CARD, TOKENIZER, SETTINGS, SUMS)
CHECKED = (CONFIG, WEIGHTS, TOKENIZER, SETTINGS)  # the card may be edited


def save(model: Model, folder: str | Path, dtype: str | None = None, card: str | None = None) -> Path:
    """Save a model to its own folder, which `load` reads back as the same model.

    Args:
        model: The model.
        folder: The folder; an earlier model of this format in it is replaced once the new one is complete.
        dtype: Dtype of the stored weights; None keeps the model's.
        card: Markdown for README.md; None for a short note on the model's origin.

    Returns:
        The folder.

    Raises:
        SinkjaxError: The parameters do not fit the config, or the dtype cannot represent them; the config has a record from
            outside the library; the folder has content other than a model of this format, or is a symbolic link or the working
            directory; the disk is full.
    """
    check_model(model)
    folder = user_path(folder)
    values = {"model_type": MODEL_TYPE, **documents.plain(documents.fields(model.config))}
    lost = read_config(values, "the config") != model.config
    refuse(lost, "the config does not survive being written and read, so it cannot be saved")
    return write_model(folder, values, stored(model, dtype), model, card)


def stored(model: Model, dtype: str | None) -> dict[str, np.ndarray]:
    """Return a model's leaves on the host in their stored form, by path.

    Errors: parameters that do not fit the config; NaN or infinity, originally or because of the dtype.
    """
    params.check(model.params, model.config)
    arrays = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(model.params):
        params.check_dtype(dtype or str(leaf.dtype))
        with np.errstate(over="ignore"):
            array = arrays[leaf_name(path)] = np.asarray(leaf).astype(dtype or leaf.dtype, copy=False)
        finite = bool(np.isfinite(array).all())
        refuse(not finite, f"{leaf_name(path)} holds NaN or infinity in {array.dtype}, so the model cannot be saved")
    return arrays


def write_model(
    folder: Path, values: Mapping[str, Any], arrays: Mapping[str, np.ndarray], model: Model, card: str | None
) -> Path:
    """Write a model's files into its own folder. Errors: the folder has other content (`check_place`); no space."""
    check_place(folder, values["model_type"])
    with whole_folder(folder.absolute(), sum(array.nbytes for array in arrays.values())) as scratch:
        (scratch / CARD).write_text(card if card is not None else default_card(model), encoding="utf-8")
        if model.tokenizer is not None:
            write_folder_tokenizer(model.tokenizer, scratch)
        write_safetensors(scratch / WEIGHTS, arrays)
        (scratch / CONFIG).write_text(json.dumps(values, indent=2, allow_nan=False) + "\n", encoding="utf-8")
        write_checksums(scratch)
    return folder


def check_place(folder: Path, kind: str) -> None:
    """Raise unless `folder` does not exist, is empty, or contains only a model of this kind, whose files are ours."""
    there = [folder / name for name in own_folder(folder, "the model")]
    with attempt("write", folder):
        kind_there = read_json(folder / CONFIG).get("model_type") if (folder / CONFIG).is_file() else None
    theirs = f"{folder} holds a model of type {kind_there!r}, which is left alone: choose another folder"
    refuse(kind_there not in (None, kind), theirs)
    ours = {path.name for path in there if path.name in FILES and path.is_file() and not path.is_symlink()}
    other = [path.name for path in there if kind_there is None or path.name not in ours]
    named = ", ".join(other[:3]) + (f" and {len(other) - 3} more" if len(other) > 3 else "")
    what = "is not the folder of a model" if kind_there is None else "does not hold a model alone"
    refuse(bool(other), f"{folder} {what} ({named}), so it is left alone: choose another folder")


def default_card(model: Model) -> str:
    """Describe the origin of a model."""
    origin = "\n".join(f"- {name}: {value}" for name, value in model.source.items() if value not in (None, {}))
    return f"# A model saved by sinkjax\n\n{params.count(model.config):,} parameters. Where they come from:\n\n{origin}\n"


def read(folder: Path, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Checkpoint:
    """Read a folder of this format. values: its config.json. Errors: wrong entries in its files, by name."""
    config = read_config(values, str(folder / CONFIG))
    source = {"kind": "folder", "name": str(folder), "model_type": MODEL_TYPE, "stored": stored_as(tensors)}
    tokenizer = read_folder_tokenizer(folder, {})
    return Checkpoint(str(folder), config, None, tensors, (), tokenizer, {**source, "assumed": {}})


def read_config(values: Mapping[str, Any], where: str) -> Config:
    """Convert a parsed config.json to a config. Errors: an unknown or missing key or record, or an invalid value, by name."""
    former = {old: new for new, old in FORMER.items()}
    return documents.build(Config, {former.get(key, key): value for key, value in values.items() if key != "model_type"}, where)
