"""The format of one family in llama.cpp: a table next to the family's Hugging Face names, as `Family.gguf`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.fields import GREATEST
from sinkjax.checkpoints.names import Table
from sinkjax.checkpoints.tensors import Tensor
from sinkjax.errors import SinkjaxError, short

# Keys of files whose heads share the width evenly, each with its own key and value.
EVEN_HEADS: dict[str, str | None] = {"attention.head_count_kv": None, "attention.key_length": None}

# What llama.cpp takes for a key that a file lacks, whatever its architecture.
ABSENT = {
    "attention.head_count_kv": "`attention.head_count`",
    "attention.key_length": "`embedding_length` / `attention.head_count`",
    "attention.value_length": "`embedding_length` / `attention.head_count`",
    "attention.clamp_kqv": "no clamp",
    "rope.dimension_count": "`attention.key_length`",
    "rope.freq_base": "10000",
    "rope.scaling.type": "linear",
    "rope.scaling.factor": "`rope.scale_linear`, or 1",
    "rope.scale_linear": "1",
    "rope.scaling.attn_factor": "1",
    "rope.scaling.original_context_length": "`context_length`",
    "rope.scaling.yarn_beta_fast": "32",
    "rope.scaling.yarn_beta_slow": "1",
    "vocab_size": "the number of tokens",
    "attention.sliding_window": "not read: no window",
    "expert_count": "0",
    "expert_used_count": "0",
}


@dataclass(frozen=True)
class GgufFile:
    """The parts of a GGUF file that determine its family and the settings that no key states.

    Attributes:
        own: Its metadata below the name of its architecture, without that name.
        tensors: Its tensors by name.
        name: The names that it gives for itself and its base model.
    """

    own: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    name: str = ""

    def number(self, key: str) -> float:
        """Return a metadata value that must be a number above 0, or 0. Errors: it is missing, or another value."""
        value: Any = self.own.get(key)
        if type(value) not in (int, float) or not 0 <= value < GREATEST:
            raise SinkjaxError(f"the metadata must state {key!r} as a number of at least 0, not {short(value)}")
        return value

    def names(self) -> Table:
        """Return the table of names that every architecture shares, for the layout of this file."""
        fused = names.GGUF_FUSED if "blk.0.attn_qkv.weight" in self.tensors else {}
        return names.GGUF | fused | (names.GGUF_EXPERTS if "blk.0.ffn_gate_inp.weight" in self.tensors else {})

    def has(self, leaf: str) -> bool:
        """Return whether layer 0, or the model, has a tensor for a leaf of the parameters."""
        return names.as_part(self.names()[leaf]).name.format(0) in self.tensors


@dataclass(frozen=True)
class Gguf:
    """The format of a family in llama.cpp, beyond the names in `names.GGUF` and the keys in `gguf.KEYS`.

    Attributes:
        architecture: `general.architecture` of the files.
        keys: Metadata key below the architecture -> config.json key. None: `implied` or nothing reads it.
        implied: config.json key -> the value that the architecture or the file's tensors imply, which a stated or assumed one
            replaces; or a function of the file.
        fixed: Metadata key -> the only value that is supported.
        rope: Keys of `rope_scaling` -> the values that the architecture implies of a scaled rotation.
        tensors: Leaf -> tensor name if it differs from `names.GGUF`; or a function of the file.
        partial: Whether only a part of each head may be rotated.
        interleaved: Whether the rows of each head of queries and keys are stored as pairs (2i, 2i + 1) of a rotation.
        offset_norms: Whether the gains of norms are stored with their 1 added.
        suits: Which files of the architecture belong to this family; settings that the user assumes count as stated.
        unstated: config.json keys that a file must state although llama.cpp does without, each with the reason.
        absent: Metadata key -> what llama.cpp takes if a file lacks it, in addition to `ABSENT`; for the documentation.
    """

    architecture: str
    keys: Mapping[str, str | None] = field(default_factory=dict)
    implied: Mapping[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    rope: Mapping[str, Any] = field(default_factory=dict)
    tensors: Table | Callable[[GgufFile], Table] = field(default_factory=dict)
    partial: bool = False
    interleaved: bool = False
    offset_norms: bool = False
    suits: Callable[[GgufFile], bool] = lambda file: True
    unstated: Callable[[GgufFile], Mapping[str, str]] = lambda file: {}
    absent: Mapping[str, str] = field(default_factory=dict)

    def names(self, file: GgufFile) -> Table:
        """Return the table of tensors of a file."""
        return {**file.names(), **(self.tensors(file) if callable(self.tensors) else self.tensors)}


def has(leaf: str) -> Callable[[GgufFile], bool]:
    """Return a function that says whether a GGUF has a tensor for a leaf, as an entry of `Gguf.implied`."""
    return lambda file: file.has(leaf)
