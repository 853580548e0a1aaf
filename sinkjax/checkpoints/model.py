"""A model as its files describe it, which `load` reads, and a model in memory, which it returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sinkjax.checkpoints.names import Table
from sinkjax.checkpoints.tensors import Tensor
from sinkjax.checkpoints.tokenizer import Tokenizer
from sinkjax.errors import SinkjaxError, short
from sinkjax.model.config import Config
from sinkjax.model.params import Params, count
from sinkjax.runtime import display


@dataclass(frozen=True)
class Checkpoint:
    """Everything in a checkpoint, before any weights are read.

    where: its path, for messages. names: leaf name -> tensor name, "{}" standing for the layer (None: see `names.slots`).
    tensors: tensor name -> Tensor. ignored: patterns of tensor names that may exist without a meaning. tokenizer: a
    `Tokenizer`, or None if the files have none. source: provenance (see `Model`). initializer_range: the standard deviation of
    the initial weights, None if it is not stated.
    """

    where: str
    config: Config
    names: Table | None
    tensors: Mapping[str, Tensor]
    ignored: tuple[str, ...]
    tokenizer: Any
    source: Mapping[str, Any]
    initializer_range: float | None = None


@dataclass(frozen=True, eq=False)
class Model:
    """A model in memory.

    Attributes:
        config: The architecture.
        params: Arrays in the tree of `params.abstract(config)`, all of one dtype.
        tokenizer: The tokenizer, or None if the files have none.
        source: Provenance: kind ("preset", "packaged", "folder", "hub", "gguf", "untrained", "transformers" or "arrays"), name,
            revision (a hub commit, else None), sha256 (of the stored weights, or of randomly drawn ones in the order of the
            tree), dtype, model_type, bos and eos (token ids or None), stored (the type of most numbers in the files, e.g.
            "bfloat16" or "Q4_1"; None for an untrained model), and, where they apply, title (the full name), adapter (kind and
            folder of a merged one), stated_context (the files' value, if `load` was given another), tokenizer and ignore_keys
            (as passed to `load`), part_of and left_out (the model type of which this is the text part, and how many tensors of
            each other part were left out), and assumed (values used for config keys that the files omit).
    """

    config: Config
    params: Params = field(repr=False)
    tokenizer: Tokenizer | None = field(repr=False)
    source: Mapping[str, Any]

    def _repr_html_(self) -> str:
        said = {name: value for name, value in self.source.items() if value not in (None, {}) and name != "title"}
        rows = {"parameters": f"{count(self.config):,}", "tokenizer": "no" if self.tokenizer is None else "yes"}
        title = str(self.source.get("title") or self.source["name"])
        return display.table(title, ("", ""), [*display.chosen(self.config).items(), *rows.items(), *said.items()])


def check_model(model: Any) -> None:
    """Raise unless the argument is a `Model`."""
    if not isinstance(model, Model):
        raise SinkjaxError(f"a model must come from sinkjax.load, not {short(model)}{hint(model)}")


def hint(model: Any) -> str:
    """Advise, for an error, what to do with a model of another library; "" for anything else."""
    live = hasattr(model, "state_dict") and hasattr(model, "config")
    return "; sinkjax.from_transformers takes a model of transformers" if live else ""
