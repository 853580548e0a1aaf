"""Settings of commands on a given model. This module imports no JAX, so that lists of studies are immediate."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sinkjax.config_files import documents
from sinkjax.config_files.checks import at_least
from sinkjax.model.names import Dtype


class Settings:
    """Settings of a study. Each study declares its own, so that their names are checked when it is read."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def check(self) -> None:
        """Refuse values that do not fit the study or each other; a study with such values overrides it."""


@dataclass(frozen=True, kw_only=True)
class OnModel(Settings):
    """A given model, and how to load it."""

    model: str = "smollm2-135m"
    """preset, Hugging Face folder or hub id, or .gguf file; after "untrained:", that architecture with random weights"""
    revision: str | None = None
    """branch, tag or commit of a hub id"""
    ignore_keys: tuple[str, ...] = field(default=(), metadata=documents.LATER)
    """keys of the model's config.json or metadata, or tensors, to ignore because no number depends on them"""
    tokenizer: str | None = field(default=None, metadata=documents.LATER)
    """folder, .gguf file or hub id of a tokenizer, if the model's files have none"""
    dtype: Dtype = "float32"
    """precision of the parameters and activations"""

    def __post_init__(self) -> None:
        documents.typed(self)
        at_least(self, prompts=1, length=2, seed=0)
