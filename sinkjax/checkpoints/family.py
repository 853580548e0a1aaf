"""A family: the architecture fields and tensor names of one `model_type` of transformers.

Each `families/NAME.py` defines one `FAMILY` and is found automatically; other packages register theirs (GROUP), and their code is
imported only for a model of a type that has no family here. A family's `read` maps the keys of config.json to the fields of
`Config`, using the helpers below, and `tensors` maps the leaves of the parameter tree to names of stored tensors.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from sinkjax.checkpoints.buffers import Buffer
from sinkjax.checkpoints.fields import Fields
from sinkjax.checkpoints.gguf_family import Gguf
from sinkjax.checkpoints.hf_rope import KINDS, rope_of
from sinkjax.checkpoints.names import LeafPart, Table, as_part
from sinkjax.config_files.checks import refuse
from sinkjax.errors import SinkjaxError, short, unknown
from sinkjax.model.config import Config
from sinkjax.model.norms import LayerNorm, RMSNorm
from sinkjax.model.rotary import LayerRopes, Rope

MOST_LAYERS = 4096
GROUP = "sinkjax.families"  # entry points by which other packages add families: model type -> "module:FAMILY"
NATIVE = "sinkjax"  # the model type of `native`, which is no family

ACTIVATIONS = {
    **{name: name for name in ("silu", "gelu", "relu", "relu2")},
    "swish": "silu",
    **dict.fromkeys(("gelu_new", "gelu_pytorch_tanh", "gelu_fast"), "gelu_tanh"),
}


@dataclass(frozen=True)
class Separator:
    """The token between documents in pretraining, according to papers, model cards or maintainers; only for information.

    Attributes:
        token: Its text.
        in_front: Whether the model was trained with it in front of documents; None if that is not public or not known to us.
        note: Additional remarks.
    """

    token: str
    in_front: bool | None = None
    note: str = ""


@dataclass(frozen=True)
class Family:
    """One model type.

    Attributes:
        model_type: Its name in config.json.
        read: Function from the file's fields to those of `Config`, in one spelling (see `hf_rope.one_spelling`).
        tensors: Leaf name -> tensor name, "{}" standing for the layer; see `names.LeafPart` for leaves that share a tensor. A
            function of the config if names depend on it.
        defaults: Key -> meaning of its absence, or a function of the fields that returns it. Only keys that published checkpoints
            actually omit have one, because transformers documents their absence.
        spelled: Keys that only this family has -> the usual name.
        inert: Keys that change neither weights nor forward, in addition to those in `inert.yaml`.
        fixed: Keys with one supported value.
        layouts: Tables of leaves that some files store otherwise, such as all experts of a layer in one tensor; a table replaces
            entries of `tensors` where a file has the tensor of its leaf `down`.
        aliases: Names that some files give to a tensor -> its name in `tensors`.
        buffers: Patterns of tensors that follow from the architecture -> what they must be.
        separator: Separator of documents in pretraining; None if it is not public or not known to us.
        gguf: The family in llama.cpp's format; None if llama.cpp does not support it.
    """

    model_type: str
    read: Callable[[Fields], dict[str, Any]]
    tensors: Table | Callable[[Config], Table]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    spelled: Mapping[str, str] = field(default_factory=dict)
    inert: frozenset[str] = frozenset()
    fixed: Mapping[str, Any] = field(default_factory=dict)
    layouts: tuple[Table, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    buffers: Mapping[str, Buffer] = field(default_factory=dict)
    separator: Separator | None = None
    gguf: Gguf | None = None

    def names(self, config: Config, held: Collection[str] = ()) -> Table:
        """Return the table of a model's tensors. held: the names in a file, perhaps below another prefix than the table's."""
        table = self.tensors(config) if callable(self.tensors) else self.tensors
        for layout in self.layouts:
            first = as_part(layout["down"]).name.format(0, 0).removeprefix("model.")
            table = {**table, **layout} if any(name.endswith(first) for name in held) else table
        return table


@functools.cache
def families() -> dict[str, Family]:
    """Map model types to families, one per module of the package `families`."""
    from sinkjax.checkpoints import families as package

    modules = sorted(entry.name for entry in pkgutil.iter_modules(package.__path__))
    loaded = (importlib.import_module(f"{package.__name__}.{name}").FAMILY for name in modules)
    return {family.model_type: family for family in loaded}


@functools.cache
def registered() -> dict[str, list[EntryPoint]]:
    """Map further model types to what installed packages register for them in the group GROUP; none of it is imported."""
    found: dict[str, list[EntryPoint]] = {}
    for entry in entry_points(group=GROUP):
        if entry.name not in {*families(), NATIVE}:
            found.setdefault(entry.name, []).append(entry)
    return found


def origin(model_type: str) -> str | None:
    """Return the package that registers a model type, with its version, or all that do; None for one that is here."""
    packages = [entry.dist for entry in registered().get(model_type, [])]
    return " and ".join(f"{package.name} {package.version}" for package in packages if package) or None


@functools.cache
def family_of(model_type: str) -> Family | None:
    """Return the family of a model type, imported from another package if it is not here; None if there is none.

    Errors: two packages register it; it cannot be imported, or is not a `Family` of this model type.
    """
    if model_type not in registered():
        return families().get(model_type)
    entry, *others = registered()[model_type]
    given = f"the family {model_type!r} of {origin(model_type)}"
    refuse(bool(others), f"{given} is registered twice, and nothing says which is meant: uninstall one package")
    try:
        family = entry.load()
    except Exception as error:  # code of others may raise anything
        raise SinkjaxError(f"{given} cannot be imported: {type(error).__name__}: {short(str(error))}") from error
    named = isinstance(family, Family) and family.model_type == model_type
    refuse(
        not named,
        f"{given} must be a sinkjax.checkpoints.family.Family with this model_type, but {entry.value} is {short(family)}",
    )
    return family


def known(model_type: str) -> Family:
    """Do `family_of`. Errors: those, or there is no such family."""
    if (family := family_of(model_type)) is None:
        raise unknown("family", model_type, [*families(), *registered()])
    return family


def dims_of_keys(model_type: Any, config: Config) -> tuple[int, ...]:
    """Return the place in transformers' keys of each dim of a key here; () if they are the same (see `names.half_split`)."""
    family = family_of(str(model_type))
    part = None if family is None else family.names(config).get("k")
    if not isinstance(part, LeafPart) or part.view is None:
        return ()
    shape, (*_, order) = part.view(config)
    return order if shape == (config.kv_heads, config.head_dim) and isinstance(order, tuple) else ()


# The common keys, sizes and others that every architecture states, by the fields of `Config`.
SIZES = {
    "layers": "num_hidden_layers",
    "width": "hidden_size",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "mlp_width": "intermediate_size",
    "vocab_size": "vocab_size",
    "activation": "hidden_act",
    "tied": "tie_word_embeddings",
}


def sizes(fields: Fields, **renamed: str | None) -> dict[str, Any]:
    """Read the fields of SIZES.

    renamed: their keys in this family; a key of None is not read: there are then as many key-value heads as heads, and the heads
    share the width evenly."""
    keys = {**SIZES, **renamed}
    read: dict[str, Callable[[str], Any]] = {
        **dict.fromkeys(keys, fields.integer),
        "layers": lambda key: fields.integer(key, high=MOST_LAYERS),
        "activation": lambda key: ACTIVATIONS[fields.choice(key, ACTIVATIONS, key)],
        "tied": fields.flag,
    }
    values = {name: read[name](key) for name, key in keys.items() if key is not None}
    if keys["kv_heads"] is None:
        values["kv_heads"] = values["heads"]
        fields.fixed("num_key_value_heads", values["heads"])
    if keys["head_dim"] is None:
        values["head_dim"] = even_head_dim(fields, str(keys["width"]), str(keys["heads"]))
        fields.fixed("head_dim", values["head_dim"])
    return values


def even_head_dim(fields: Fields, width_key: str = "hidden_size", heads_key: str = "num_attention_heads") -> int:
    """Return the width divided by the heads; raise unless it is a multiple."""
    width, heads = fields.integer(width_key), fields.integer(heads_key)
    refuse(width % heads > 0, f"{fields.where} states no head_dim, and {width_key} {width} is not a multiple of {heads} heads")
    return width // heads


def as_many_as_heads(fields: Fields) -> int:
    """Return the key-value heads of a file that does not state them."""
    return fields.integer("num_attention_heads")


# Absences that the classes of many families document.
COMMON = {"num_key_value_heads": as_many_as_heads, "attention_bias": False, "tie_word_embeddings": False}


def rotary(fields: Fields, head_dim: int | None = None, partial: float = 1.0, kinds: tuple[str, ...] = KINDS) -> dict[str, Any]:
    """Read the rotary position and the context. head_dim: defaults to the rotated part, in families with partial rotation."""
    context, theta = fields.integer("max_position_embeddings"), fields.number("rope_theta")
    position, context = rope_of(fields.table("rope_scaling"), theta, context, fields, head_dim, partial, kinds)
    if position.dims == 0:  # no part of a head is rotated
        layers = fields.integer("num_hidden_layers", high=MOST_LAYERS)
        return {"position": LayerRopes((Rope(theta),), (None,) * layers), "context": context}
    return {"position": position, "context": context}


def rms_norm(fields: Fields) -> dict[str, Any]:
    return {"norm": RMSNorm(fields.number("rms_norm_eps"))}


def layer_norm(fields: Fields, key: str, bias: bool = True) -> dict[str, Any]:
    """Read a LayerNorm whose epsilon is under `key`."""
    return {"norm": LayerNorm(fields.number(key), bias=bias)}


def biases(qkv: bool, out: bool, mlp: bool) -> dict[str, Any]:
    return {"qkv_bias": qkv, "out_bias": out, "mlp_bias": mlp}


def window(fields: Fields) -> int | None:
    """Read the window. Null means none, but the key is required, because transformers has its own default."""
    return optional_window(fields) if "sliding_window" in fields.values else fields.integer("sliding_window")


def optional_window(fields: Fields) -> int | None:
    """Read the window; absent or null means none."""
    fields.read.add("sliding_window")
    return fields.integer("sliding_window") if fields.stated("sliding_window") else None


def windows(fields: Fields, size: int | None, sliding: Callable[[int], bool], layers: int) -> dict[str, Any]:
    """Return each layer's window: `size` where `layer_types` says so, or, without it, where `sliding(layer)` is true."""
    fields.read.add("layer_types")
    kinds = fields.values.get("layer_types")
    if kinds is None:
        kinds = ["sliding_attention" if size and sliding(layer) else "full_attention" for layer in range(layers)]
    fields.require(isinstance(kinds, list) and len(kinds) == layers, "layer_types", f"a list of {layers} kinds of layer")
    known = all(kind in ("full_attention", "sliding_attention") for kind in kinds)
    fields.require(known, "layer_types", "made of full_attention and sliding_attention")
    wanted = "sliding_attention" in kinds and not size
    refuse(wanted, f"layer_types in {fields.where} has sliding_attention, but no sliding window is in use")
    each = tuple(size if kind == "sliding_attention" else None for kind in kinds)
    return {"windows": each if any(each) else None}


def local_windows(fields: Fields, layers: int) -> dict[str, Any]:
    """Return each layer's window; without `layer_types`, all layers have one but every `sliding_window_pattern`-th."""
    step = fields.integer("sliding_window_pattern") if not fields.stated("layer_types") else 1
    fields.read.add("sliding_window_pattern")
    return windows(fields, window(fields), lambda layer: (layer + 1) % step != 0, layers)


def rotated_locally(position: dict[str, Any], seen: tuple[int | None, ...]) -> dict[str, Any]:
    """Restrict a rotation, as `rotary` returns it, to the layers that have a window. seen: each layer's window."""
    return position | {"position": LayerRopes((position["position"],), tuple(None if size is None else 0 for size in seen))}
