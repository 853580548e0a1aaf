"""The format of one family in llama.cpp: a table next to the family's Hugging Face names, as `Family.gguf`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from sinkjax.checkpoints import names
from sinkjax.checkpoints.fields import GREATEST
from sinkjax.checkpoints.names import Table
from sinkjax.checkpoints.tensors import Tensor
from sinkjax.errors import SinkjaxError, short

# Keys of files whose heads share the width evenly, each with its own key and value.
EVEN_HEADS: dict[str, str | None] = {"attention.head_count_kv": None, "attention.key_length": None}
# Flags of a config.json -> the leaf whose tensor shows that they are set.
SHOWN = {
    **dict.fromkeys(("attention_bias", "bias", "use_bias", "use_qkv_bias"), "q_bias"),
    **dict.fromkeys(("qk_layernorm", "use_qk_norm"), "q_norm"),
    "attention_out_bias": "o_bias",
    "mlp_bias": "up_bias",
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
        act: The activation, as `hidden_act`; None if the config.json has no such key.
        implied: Further config.json key -> the value that the architecture or the file's tensors imply, which a stated or assumed
            one replaces; or a function of the file. `SHOWN` has flags that the tensors show in every family.
        fixed: Metadata key -> the only value that is supported.
        rope: Keys of `rope_scaling` -> the values that the architecture implies of a scaled rotation.
        tensors: Leaf -> tensor name if it differs from `names.GGUF`; or a function of the file.
        partial: Whether only a part of each head may be rotated.
        interleaved: Whether the rows of each head of queries and keys are stored as pairs (2i, 2i + 1) of a rotation.
        offset_norms: Whether the gains of norms are stored with their 1 added.
        suits: Which files of the architecture belong to this family; settings that the user assumes count as stated.
        unstated: config.json keys that a file must state although llama.cpp does without, each with the reason.
    """

    architecture: str
    keys: Mapping[str, str | None] = field(default_factory=dict)
    act: str | None = "silu"
    implied: Mapping[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    rope: Mapping[str, Any] = field(default_factory=dict)
    tensors: Table | Callable[[GgufFile], Table] = field(default_factory=dict)
    partial: bool = False
    interleaved: bool = False
    offset_norms: bool = False
    suits: Callable[[GgufFile], bool] = lambda file: True
    unstated: Callable[[GgufFile], Mapping[str, str]] = lambda file: {}

    def names(self, file: GgufFile) -> Table:
        """Return the table of tensors of a file."""
        return {**file.names(), **(self.tensors(file) if callable(self.tensors) else self.tensors)}

    def implications(self, file: GgufFile, defaults: Collection[str], assumed: Collection[str]) -> dict[str, Any]:
        """Return the config.json values that the architecture and a file's tensors imply, except for the keys in `assumed`.

        defaults: keys of `Family.defaults`.
        """
        values: dict[str, Any] = {"hidden_act": self.act} if self.act else {}
        values |= {**{key: file.has(leaf) for key, leaf in SHOWN.items() if key in defaults}, **self.implied}
        return {key: value(file) if callable(value) else value for key, value in values.items() if key not in assumed}
