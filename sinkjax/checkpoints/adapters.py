"""Adapters of peft beside or in place of a model: LoRA, rsLoRA and DoRA are merged into the weights, all others are refused.

W' = W + s B A,  s = alpha / r, or alpha / sqrt(r) with rsLoRA;  DoRA: each output's row of W' is scaled to a learned length
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sinkjax.checkpoints.family import known
from sinkjax.checkpoints.fields import GREATEST, Fields
from sinkjax.checkpoints.model import Checkpoint
from sinkjax.checkpoints.names import as_part, slots
from sinkjax.checkpoints.prefixes import canonical
from sinkjax.checkpoints.safetensors import read_safetensors
from sinkjax.checkpoints.tensors import Tensor
from sinkjax.checkpoints.tokenizer import read_json
from sinkjax.config_files.checks import refuse
from sinkjax.errors import SinkjaxError, short, unknown

SETTINGS, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
ADVICE = "load the model with peft, and save or pass model.merge_and_unload()"
READ = frozenset(
    {"peft_type", "base_model_name_or_path", "revision", "r", "rank_pattern", "lora_alpha", "alpha_pattern", "fan_in_fan_out"}
    | {"use_rslora", "use_dora"}
)
# Settings that choose what is trained or how, which the tensors show, or that name origins.
INERT = frozenset(
    {"task_type", "auto_mapping", "peft_version", "inference_mode", "target_modules", "exclude_modules", "lora_dropout", "bias"}
    | {"modules_to_save", "layers_to_transform", "layers_pattern", "megatron_core", "qalora_group_size"}
    | {"loftq_config", "runtime_config", "eva_config", "ensure_weight_tying"}
)
# Of these, initialisations that leave the base model's weights as they are.
INITIAL = (True, False, "gaussian", "eva", "orthogonal")
LOW_RANK = re.compile(r"(.+)\.lora_(A|B|embedding_A|embedding_B|magnitude_vector)(?:\.default)?(?:\.weight)?")
TIME = 10  # seconds for all expressions of an adapter, which take milliseconds
MATCH = """
import json, re, sys
expressions, names = json.load(sys.stdin)
found = {each: [name for name in names if re.match(rf"(.*\\.)?({each})$", name)] for each in expressions}
print(json.dumps(found))
"""
UNMERGED = re.compile(r"\.(lora_\w+|base_layer|modules_to_save)\.|\.(lora_embedding_[AB]|lora_magnitude_vector)$")


@dataclass(frozen=True)
class Adapter:
    """An adapter as its folder states it.

    base: the model that it changes, as `load` takes it. values: its settings. tensors: tensor name -> Tensor.
    """

    folder: Path
    base: str
    revision: str | None
    values: Fields
    tensors: Mapping[str, Tensor]

    @property
    def kind(self) -> str:
        return "DoRA" if self.values.values.get("use_dora") else "rsLoRA" if self.values.values.get("use_rslora") else "LoRA"

    def by_module(self, pattern: str, usual: str, modules: Sequence[str]) -> dict[str, float]:
        """Return a number of each module: that of the first key of the table `pattern` which matches its name, or `usual`.

        Errors: a key that matches no module; as for `matches`; not a number.
        """
        fields = Fields(self.values.table(pattern), f"{pattern} of {self.values.where}", in_table=True)
        matched = matches([*fields.values], modules, f"{pattern} in {self.values.where}") if fields.values else {}
        numbers: dict[str, float] = {}
        for key, names in matched.items():
            if not names:
                raise unknown(f"module in {fields.where}:", key, modules)
            numbers = dict.fromkeys(names, fields.number(key, -GREATEST)) | numbers
        return dict.fromkeys(modules, self.values.number(usual, -GREATEST)) | numbers


def read_adapter(folder: Path) -> Adapter | None:
    """Read the adapter of a folder, or return None if it has none.

    Errors: a kind of adapter or a setting whose merge is not the three products above; its weights are missing or pickled.
    """
    if not (folder / SETTINGS).is_file():
        return None
    values = Fields(read_json(folder / SETTINGS), str(folder / SETTINGS), {"r": 8, "lora_alpha": 8})  # peft's defaults
    kind = values.values.get("peft_type")
    refuse(kind != "LORA", f"{values.where} is an adapter of peft_type {short(kind)}, which sinkjax does not merge: {ADVICE}")
    initial = values.values.get("init_lora_weights", True) in INITIAL
    for key, value in values.values.items():
        merged = initial if key == "init_lora_weights" else not value or key in READ | INERT
        refuse(not merged, f"the adapter {values.where} states {key!r}: {short(value)}, which sinkjax does not merge: {ADVICE}")
    base, revision = (values.values.get(key) or None for key in ("base_model_name_or_path", "revision"))
    no_base = not isinstance(base, str)
    refuse(no_base, f"the adapter {values.where} names no base_model_name_or_path, so nothing can be merged: {ADVICE}")
    pickled = not (folder / WEIGHTS).is_file()
    refuse(pickled, f"the adapter in {folder} has no {WEIGHTS}; if its weights are a pickle, {ADVICE}")
    revision = revision if isinstance(revision, str) else None
    return Adapter(folder, str(base), revision, values, read_safetensors(folder / WEIGHTS))


def merge(checkpoint: Checkpoint, adapter: Adapter) -> Checkpoint:
    """Return a family's checkpoint with an adapter's changes in its weights.

    Errors: a tensor that changes nothing in this model, lacks its partner or has another shape; a tied embedding, whose merge
    peft does not compute.
    """
    where = f"the adapter in {adapter.folder}"
    refuse(checkpoint.names is None, f"{where} changes {checkpoint.where}, which is a model of sinkjax: {ADVICE}")
    names = checkpoint.names or {}
    wanted = slots(checkpoint.config, checkpoint.names)
    embed = as_part(names["embed"]).name
    aliases = known(str(checkpoint.source["model_type"])).aliases
    matched = {name: LOW_RANK.fullmatch(name) for name in adapter.tensors}
    plain = {name: re.sub(r"\.(base_layer|modules_to_save(\.default)?)\.", ".", name) for name in matched}
    given = {name: f"{match[1]}.weight" if match else plain[name] for name, match in matched.items()}
    meant = canonical(dict.fromkeys(given.values()), wanted, embed.split(".")[0] + ".", aliases, where)
    parts: dict[str, dict[str, np.ndarray]] = {}
    tensors = dict(checkpoint.tensors)
    for name, match in matched.items():
        target = meant[given[name]]
        refuse(target not in tensors, f"{where} has {name!r}, which changes no tensor of {checkpoint.where}")
        tied = checkpoint.config.tied and target == embed
        refuse(tied, f"{where} changes {target}, which is tied to the unembedding; peft does not merge the two alike")
        if match is None:
            tensors[target] = adapter.tensors[name]
        else:
            parts.setdefault(target, {"module": np.array(match[1])})[match[2]] = adapter.tensors[name].array()
    modules = {target: str(own.pop("module")).removeprefix("base_model.model.") for target, own in parts.items()}
    alphas = adapter.by_module("alpha_pattern", "lora_alpha", [*modules.values()])
    ranks = adapter.by_module("rank_pattern", "r", [*modules.values()])
    for target, module in modules.items():
        tensors[target] = _merged(tensors[target], adapter, module, parts[target], alphas[module], ranks[module])
    source = {**checkpoint.source, "adapter": f"{adapter.kind} in {adapter.folder}"}
    return dataclasses.replace(checkpoint, tensors=tensors, source=source)


def matches(expressions: Sequence[str], names: Sequence[str], where: str) -> dict[str, list[str]]:
    """Map regular expressions to the names that end in a match, after a dot or as a whole, as peft matches them.

    They are matched in another process, because some take longer than the age of the universe and none can be interrupted.
    Errors: not a regular expression; one that takes longer than TIME.
    """
    command, pairs = [sys.executable, "-I", "-c", MATCH], json.dumps([expressions, names])
    try:
        done = subprocess.run(command, input=pairs, capture_output=True, text=True, timeout=TIME)
    except subprocess.TimeoutExpired:
        slow = f"a regular expression of {where} takes more than {TIME} s on the names of modules"
        raise SinkjaxError(f"{slow}; simplify: {short([*expressions])}") from None
    reason = (done.stderr.strip().splitlines() or ["no memory"])[-1]
    refuse(done.returncode != 0, f"{where} must be regular expressions: {reason}")
    return dict(json.loads(done.stdout))


def _merged(base: Tensor, adapter: Adapter, module: str, own: Mapping[str, np.ndarray], alpha: float, rank: float) -> Tensor:
    """Return a weight with its change, computed in float32 (or float64 if it is stored so), by rows. own: the arrays by name."""
    embedding = any(name.startswith("embedding") for name in own)
    ends = ("embedding_A", "embedding_B") if embedding else ("A", "B")
    where = f"the adapter in {adapter.folder}"
    incomplete = not own.keys() >= {*ends} or (embedding and "magnitude_vector" in own)
    refuse(incomplete, f"{where} has only {', '.join(sorted(own))} for {module}: {ADVICE}")
    a, b, turned = own[ends[0]], own[ends[1]], embedding or bool(adapter.values.values.get("fan_in_fan_out"))
    left, right = (a.T, b.T) if turned else (b, a)
    fits = a.ndim == b.ndim == 2 and (left.shape[0], right.shape[1]) == base.shape and left.shape[1] == right.shape[0]
    refuse(not fits, f"{where} has A {a.shape} and B {b.shape} for {module}, whose weight is {base.shape}")
    refuse(a.shape[0] != rank, f"{where} has A {a.shape} for {module}, whose rank is {rank:g} in {SETTINGS}")
    dtype = np.dtype(np.float64 if base.stored == "float64" else np.float32)
    left, right = (array.astype(dtype) for array in (left, right))
    scale = alpha / (math.sqrt(rank) if adapter.values.values.get("use_rslora") else rank)
    length = own.get("magnitude_vector")

    def changed(start: int, stop: int) -> np.ndarray:
        return base.rows(start, stop).astype(dtype) + dtype.type(scale) * (left[start:stop] @ right)

    @functools.cache
    def factor() -> np.ndarray:
        """DoRA's factor on each output: [outputs, 1], or [1, outputs] if the weight is stored inputs first."""
        squares = [np.square(changed(*rows)).sum(0 if turned else 1) for rows in base.row_pieces()]
        norm = np.sqrt(np.sum(squares, axis=0) if turned else np.concatenate(squares))
        return (np.asarray(length, dtype).reshape(-1) / norm).reshape((1, -1) if turned else (-1, 1))

    def part(start: int, stop: int) -> np.ndarray:
        block = changed(start, stop)
        if length is not None:
            block = block * (factor() if turned else factor()[start:stop])
        return np.ascontiguousarray(block, dtype).view(np.uint8)

    rows = base.shape[0]
    return Tensor(base.shape, lambda: part(0, rows), functools.partial(np.ndarray.view, dtype=dtype), base.stored, part=part)


def refuse_unmerged(names: Iterable[str], where: str) -> None:
    """Raise if tensors belong to an adapter that has not been merged."""
    for name in filter(UNMERGED.search, names):
        raise SinkjaxError(f"{where} has {name!r}, a part of an adapter that is not merged: {ADVICE}")


def refuse_live(model: Any) -> None:
    """Raise if a PyTorch model contains modules of peft."""
    modules: Iterable[Any] = model.modules() if hasattr(model, "modules") else ()
    for kind in map(type, modules):
        unmerged = kind.__module__.split(".")[0] == "peft"
        refuse(unmerged, f"this model has an adapter of peft that is not merged ({kind.__name__}): {ADVICE}")
