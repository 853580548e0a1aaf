"""A model folder as a checkpoint: config.json, safetensors in one file or in shards, and a tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from sinkjax.checkpoints import native
from sinkjax.checkpoints.adapters import refuse_unmerged
from sinkjax.checkpoints.buffers import without_buffers
from sinkjax.checkpoints.family import known, origin
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.hf_config import QUANTISED, read_config
from sinkjax.checkpoints.model import Checkpoint
from sinkjax.checkpoints.multimodal import PATTERNS, left_out, text_part
from sinkjax.checkpoints.mxfp4 import unpacked
from sinkjax.checkpoints.names import as_part, slots
from sinkjax.checkpoints.prefixes import canonical
from sinkjax.checkpoints.safetensors import read_safetensors
from sinkjax.checkpoints.tensors import Tensor, stored_as
from sinkjax.checkpoints.tokenizer import Tokenizer, read_json
from sinkjax.checkpoints.tokenizer_files import read_folder_tokenizer
from sinkjax.config_files.checks import refuse
from sinkjax.config_files.checksums import SUMS, damage
from sinkjax.config_files.files import read_text
from sinkjax.errors import SinkjaxError

CONFIG = "config.json"
SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = ("*.bin", "*.bin.index.json", "*.pth", "*.pt")
REPLACED = "{} was replaced by another model while it was read; load it again"
# Rotary frequencies that old checkpoints carry; they follow from the config.
INERT_TENSORS = ("*rotary_emb.inv_freq",)


def read_folder(
    folder: Path, ignore_keys: Collection[str] = (), assume: Mapping[str, Any] | None = None, weights: bool = True
) -> Checkpoint:
    """Read a folder in the format of transformers' `save_pretrained`, or of `native`.

    Arguments as for `load.load`; with weights=False, none are looked for.

    Errors: no config.json or no safetensors; a missing shard; any fault in a file, by name, such as one that changed since
    `save` wrote it; another model replaced it meanwhile.
    """
    held = ", ".join(sorted(path.name for path in folder.glob("*.gguf")))
    instead = f"; of the .gguf files in it, name one: {held}" if held else ""
    refuse(not (folder / CONFIG).is_file(), f"the folder {folder} has no config.json, so it is not a model{instead}")
    if weights:
        _refuse_damage(folder)
    values = read_json(folder / CONFIG)
    if values.get("model_type") == native.MODEL_TYPE:
        changed = bool(ignore_keys or assume)
        refuse(changed, f"{folder} is a model of sinkjax, whose files are complete: ignore_keys and assume do not apply")
        return native.read(folder, values, _weights_of(values, folder) if weights else {})
    source, named = {"kind": "folder", "name": str(folder)}, (str(folder), str(folder / CONFIG))

    def tensors() -> Mapping[str, Tensor]:
        return _weights_of(values, folder) if weights else {}

    def tokenizer(text: Mapping[str, Any]) -> Tokenizer | None:
        return read_folder_tokenizer(folder, {**text, **values}, ignore_keys)

    return family_checkpoint(values, named, source, tensors, tokenizer, ignore_keys, assume)


def family_checkpoint(
    values: Mapping[str, Any],
    named: tuple[str, str],
    source: Mapping[str, Any],
    stored: Callable[[], Mapping[str, Tensor]],
    tokenizer: Callable[[Mapping[str, Any]], Tokenizer | None],
    ignore_keys: Collection[str],
    assume: Mapping[str, Any] | None,
) -> Checkpoint:
    """Make a checkpoint of a config.json's values and of tensors with their family's names, of a file or in memory.

    named: the model and its config, for messages. source: see `Model`. stored: reads the tensors, once the config is read.
    tokenizer: reads the tokenizer, given the values of the model's text part. ignore_keys, assume: see `load.load`.
    """
    where, config_where = named
    text, omitted, whole = text_part(values, config_where, ignore_keys)
    config, assumed = read_config(text, config_where, ignore_keys, omitted | dict(assume or {}))
    std = Fields({**text, **(assume or {})}, config_where).optional_number("initializer_range", low=0)
    own_tokenizer, tensors = tokenizer(text), stored()
    if text.get(QUANTISED[0]) and QUANTISED[0] not in ignore_keys:  # MXFP4: `read_config` accepts no other kind
        tensors = unpacked(tensors, where)
    family = known(text["model_type"])
    names, ignored = family.names(config, tensors), (*INERT_TENSORS, *ignore_keys)
    wanted = {*slots(config, names), as_part(names["unembed"]).name}
    prefix = as_part(names["embed"]).name.split(".")[0] + "."
    refuse_unmerged(tensors, where)
    meant = canonical(tensors, wanted, prefix, family.aliases, where)
    tensors = {meant[name]: tensor for name, tensor in tensors.items()}
    tensors = without_buffers(tensors, family.buffers, ignore_keys, where)
    source = {"model_type": family.model_type, **source, "assumed": assumed, "stored": stored_as(tensors)}
    if package := origin(family.model_type):
        source["family_from"] = package
    if whole:
        source, ignored = source | {"part_of": whole, "left_out": left_out(tensors)}, (*ignored, *PATTERNS)
    return Checkpoint(where, config, names, tensors, ignored, own_tokenizer, source, std)


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files of the weights, which need not exist. Errors: none are named, or a damaged index."""
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    if (folder / INDEX).is_file():
        return sorted({folder / shard for shard in _weight_map(folder).values()})
    held = ", ".join(sorted(path.name for path in folder.glob("model-*.safetensors")))
    refuse(bool(held), f"{folder} has {held}, but no {INDEX}, which says what each shard holds")
    pickles = any(file for pattern in PICKLES for file in folder.glob(pattern))
    refuse(pickles, f"{folder} has its weights as pickles only, which sinkjax does not open: {conversion(str(folder))}")
    raise SinkjaxError(f"{folder} has neither {SINGLE} nor {INDEX}")


def conversion(name: str) -> str:
    """Describe how to convert a model's pickles to a folder of safetensors."""
    model = f"model = transformers.AutoModelForCausalLM.from_pretrained({name!r})"
    return f"where you trust them, run {model}; model.save_pretrained({Path(name).name + '-safetensors'!r})"


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Map tensor names to tensors over all files of a folder; the index decides between the shards that hold a name.

    Errors: a missing shard, or one that lacks a tensor; a tensor in two shards that the index does not list.
    """
    by_file: dict[str, dict[str, Tensor]] = {}
    for file in weight_files(folder):
        refuse(not file.is_file(), f"the shard {file.name} that {folder / INDEX} names is missing")
        by_file[file.name] = read_safetensors(file, buffers=True)
    if SINGLE in by_file:
        return by_file[SINGLE]
    shards, index = _weight_map(folder), folder / INDEX
    for name, shard in shards.items():
        refuse(name not in by_file[shard], f"{index} puts {name} into {shard}, which does not hold it")
    tensors = {name: by_file[shard][name] for name, shard in shards.items()}
    for shard, held in by_file.items():
        for name in sorted(held.keys() - shards.keys()):  # transformers reads them too
            refuse(name in tensors, f"{name} stands in {shard} and in another shard, and {index} does not say which one counts")
            tensors[name] = held[name]
    return tensors


def _refuse_damage(folder: Path) -> None:
    """Compare a folder that `save` or `export` wrote with its checksums. Errors: a file that has changed, by name."""
    listed = folder / SUMS
    before = read_text(listed) if listed.is_file() else ""
    if fault := damage(folder, native.CHECKED):
        refuse(listed.is_file() and read_text(listed) != before, REPLACED.format(folder))
        raise SinkjaxError(f"{folder} is damaged ({fault}); write it again, or delete {SUMS} in it if the change is yours")


def _weights_of(values: Mapping[str, Any], folder: Path) -> dict[str, Tensor]:
    """Do `read_weights` for a folder whose config.json had `values`; also raise if another model has replaced it."""
    tensors = read_weights(folder)
    refuse(repr(read_json(folder / CONFIG)) != repr(values), REPLACED.format(folder))  # NaN is not equal to itself
    return tensors


def _weight_map(folder: Path) -> dict[str, str]:
    shards = read_json(folder / INDEX).get("weight_map")
    named = isinstance(shards, dict) and all(isinstance(shard, str) and Path(shard).name == shard for shard in shards.values())
    refuse(not shards or not named, f"{folder / INDEX} has no weight_map from tensor names to file names")
    return dict(shards or {})
