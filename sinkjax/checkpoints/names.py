"""Stored tensors for each part of each leaf: tables of names, and slots derived from the abstract parameter tree.

A table is read in both directions: `Slot.cut` takes a block out of a stored tensor, and `export` puts it there.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from sinkjax.model import params
from sinkjax.model.config import Config
from sinkjax.model.heads import HeadGate

# Linear layers: stored [outputs, inputs], kept here input-first. Tables are rows as they are here; all else is a vector.
LINEAR = frozenset({"q", "k", "v", "o", "gate", "up", "down", "unembed", "embed_in", "embed_out", "router"})
GATES = frozenset({"head_gate", "element_gate"})
TABLES = frozenset({"embed", "positions"})

# How a leaf's part is cut from an axis of outputs: the reshaped axis, and an index into it.
View = tuple[tuple[int, ...], tuple[int | slice | tuple[int, ...], ...]]


@dataclass(frozen=True)
class LeafPart:
    """A leaf that is part of a stored tensor, or whose tensor has the inputs first.

    name: the tensor's name. view: the leaf's place among the tensor's outputs; None for all of them. stacked: whether the tensor
    has all experts of a layer, along a first axis. rows: whether a vector per head is stored as rows and not as one vector.
    """

    name: str
    view: Callable[[Config], View] | None = None
    inputs_first: bool = False
    stacked: bool = False
    rows: bool = False


Table = Mapping[str, str | LeafPart]


def modules(*within: str, **names: str) -> dict[str, str | LeafPart]:
    """Leaf -> module of that name within another: its weight, and its bias, which is used if the config asks for one."""
    paths = {leaf: ".".join((*within, name)) for leaf, name in names.items()}
    return {f"{leaf}{end}": f"{path}.{kind}" for leaf, path in paths.items() for end, kind in (("", "weight"), ("_bias", "bias"))}


def inputs_first(*within: str, **names: str) -> dict[str, str | LeafPart]:
    """As `modules`, of linear layers stored [inputs, outputs], as GPT-2 has them."""
    entries = modules(*within, **names)
    return entries | {leaf: LeafPart(str(entries[leaf]), inputs_first=True) for leaf in names}


def half_split(config: Config, leaf: str) -> View:
    """Queries or keys whose heads are rotated in pairs (2i, 2i + 1), in the order of pairs (i, i + dims / 2).

    Scores do not depend on the order of a head's dims, so one kind of rotation serves both: Cohere, GLM, ERNIE and Helium.
    """
    dims = {rope.dims for rope in config.ropes}.pop() or config.head_dim
    order = (*range(0, dims, 2), *range(1, dims, 2), *range(dims, config.head_dim))
    return (config.heads if leaf == "q" else config.kv_heads, config.head_dim), (slice(None), order)


def grouped(config: Config, leaf: str) -> View:
    """Queries of a group, their key, their value, and the next group: GPT-NeoX, BLOOM and Falcon."""
    index: dict[str, int | slice] = {"q": slice(0, config.group), "k": config.group, "v": config.group + 1}
    return (config.kv_heads, config.group + 2, config.head_dim), (slice(None), index[leaf])


def joined(config: Config, leaf: str) -> View:
    """All queries, then all keys, then all values: GPT-2, MPT and Phi-3."""
    H, K = config.heads, config.kv_heads
    first, count = {"q": (0, H), "k": (H, K), "v": (H + K, K)}[leaf]
    return (H + 2 * K, config.head_dim), (slice(first, first + count),)


def gated_queries(config: Config, leaf: str) -> View:
    """The queries of a group, then their gates, and the next group: Qwen's gated attention."""
    queries = config.group * config.head_dim
    gates = config.group if isinstance(config.gate, HeadGate) else queries
    part = slice(0, queries) if leaf == "q" else slice(queries, None)
    return (config.kv_heads, queries + gates), (slice(None), part)


def halves(config: Config, leaf: str) -> View:
    """The gate of an MLP, then the up projection: Phi-3, and experts that transformers 5 saved as one tensor."""
    return (2, config.mlp_width or 0), (("gate", "up").index(leaf),)


def alternating(config: Config, leaf: str) -> View:
    """A unit's gate, its up projection, then the next unit: gpt-oss."""
    return (config.mlp_width or 0, 2), (slice(None), ("gate", "up").index(leaf))


def fused(
    module: str,
    view: Callable[[Config, str], View],
    leaves: Sequence[str] = ("q", "k", "v"),
    inputs_first: bool = False,
    ends: tuple[str, str] = (".weight", ".bias"),
    stacked: bool = False,
) -> dict[str, str | LeafPart]:
    """Leaves that share one tensor and one of biases, named `module` with these ends. stacked, inputs_first: see `LeafPart`."""

    def part(leaf: str, end: str, inputs_first: bool = False) -> LeafPart:
        return LeafPart(module + end, lambda config: view(config, leaf), inputs_first, stacked)

    weights: dict[str, str | LeafPart] = {leaf: part(leaf, ends[0], inputs_first) for leaf in leaves}
    return weights | {f"{leaf}_bias": part(leaf, ends[1]) for leaf in leaves}


def each(module: str, view: Callable[[Config, str], View], rows: bool = False, **names: str) -> dict[str, str | LeafPart]:
    """As `modules`, each with a view of its own. rows: see `LeafPart`."""

    def part(leaf: str, name: str) -> LeafPart:
        base = leaf[0]  # q or k, also of a bias or a norm
        return LeafPart(name, lambda config: view(config, base), rows=rows)

    return {leaf: part(leaf, str(name)) for leaf, name in modules(module, **names).items()}


# The names in Llama and, possibly with changes, in most later families.
LLAMA = {
    **modules("model", embed="embed_tokens", final_norm="norm"),
    **modules("model.layers.{}", attn_norm="input_layernorm", mlp_norm="post_attention_layernorm"),
    **modules("model.layers.{}.self_attn", q="q_proj", k="k_proj", v="v_proj", o="o_proj"),
    **modules("model.layers.{}.mlp", gate="gate_proj", up="up_proj", down="down_proj"),
    **modules(unembed="lm_head"),
}

# The experts of a layer as transformers 5 holds them, and saves them where asked for.
FUSED_EXPERTS = {
    **modules("model.layers.{}.mlp", router="gate"),
    **fused("model.layers.{}.mlp.experts.gate_up_proj", halves, ("gate", "up"), ends=("", "_bias"), stacked=True),
    "down": LeafPart("model.layers.{}.mlp.experts.down_proj", stacked=True),
}


# The names in GGUF files of every architecture, possibly with changes.
GGUF: dict[str, str | LeafPart] = {
    **modules(embed="token_embd", embed_norm="token_embd_norm", positions="position_embd"),
    **modules(final_norm="output_norm", unembed="output"),
    **modules("blk.{}", attn_norm="attn_norm", mlp_norm="ffn_norm"),
    **modules("blk.{}", attn_out_norm="post_attention_norm", mlp_out_norm="post_ffw_norm"),
    **modules("blk.{}", q="attn_q", k="attn_k", v="attn_v", o="attn_output", q_norm="attn_q_norm", k_norm="attn_k_norm"),
    **modules("blk.{}", router="ffn_gate_inp", gate="ffn_gate", up="ffn_up", down="ffn_down"),
    "sink": "blk.{}.attn_sinks.weight",
}
# Where one tensor has the queries, keys and values of a layer, and where one has a projection of all experts of a layer.
GGUF_FUSED = fused("blk.{}.attn_qkv", joined)
GGUF_EXPERTS = {
    f"{leaf}{end}": LeafPart(f"blk.{{}}.ffn_{leaf}_exps.{kind}", stacked=True)
    for leaf in ("gate", "up", "down")
    for end, kind in (("", "weight"), ("_bias", "bias"))
}


def as_part(entry: str | LeafPart) -> LeafPart:
    """Convert a table entry to a record."""
    return entry if isinstance(entry, LeafPart) else LeafPart(entry)


@dataclass(frozen=True)
class Slot:
    """The place of one stored tensor, or a part of it, in `leaf` of the tree.

    place: the index of the block along the leaf's first axes, layers and possibly heads; () for all of it. stored: the required
    shape in the file. transposed: whether inputs and outputs are exchanged. pattern: the name of the tensor, "{}"
    standing for the layer. view, index: the tensor's shape when reshaped, and the block's index in it; None: all of it.
    """

    leaf: str
    place: tuple[int, ...]
    stored: tuple[int, ...]
    transposed: bool
    pattern: str
    view: tuple[int, ...] | None = None
    index: tuple[int | slice | tuple[int, ...], ...] = ()

    @property
    def fills(self) -> bool:
        """Whether the tensor fills the whole leaf."""
        return not self.place and self.view is None

    def cut(self, array: np.ndarray) -> np.ndarray:
        """The block of a stored tensor: a vector, or [outputs, inputs], or [inputs, outputs] if it is not to be transposed. Those
        of all experts of a layer lie along a first axis."""
        if self.view is None:
            return array
        block = array.reshape(self.view)[self.index]
        shape = (*self.stored[:-2], -1, self.stored[-1]) if self.transposed else (*self.stored[:-1], -1)
        return block.reshape(shape)


def slots(config: Config, names: Table | None) -> dict[str, list[Slot]]:
    """Map tensor names to slots, one entry per stored tensor that the parameters of `config` need, in order.

    names: leaf name -> tensor name; None: every leaf is one tensor, stored as it is here, under its path.
    """
    by_name: dict[str, list[Slot]] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(params.abstract(config)):
        where, name = leaf_name(path), path[-1].key
        if names is None:
            by_name[where] = [Slot(where, (), leaf.shape, False, where)]
            continue
        part = as_part(names[name])
        depth = part.name.count("{}")
        slot = _slot(config, name, part, leaf.shape[depth:], leaf.fan_in)
        for place in itertools.product(*map(range, leaf.shape[:depth])):
            by_name.setdefault(part.name.format(*place), []).append(dataclasses.replace(slot, leaf=where, place=place))
    return by_name


def _slot(config: Config, name: str, part: LeafPart, inner: tuple[int, ...], fan_in: int) -> Slot:
    """Make the slot of a leaf's block of shape `inner`, without its leaf and place."""
    if part.stacked:
        expert = _slot(config, name, dataclasses.replace(part, stacked=False), inner[1:], fan_in)
        viewed: dict[str, Any] = {"view": (inner[0], *expert.view), "index": (slice(None), *expert.index)} if expert.view else {}
        return dataclasses.replace(expert, stored=(inner[0], *expert.stored), **viewed)
    if name in TABLES:
        return Slot("", (), inner, False, part.name)
    outputs, inputs = (math.prod(inner) // fan_in, (fan_in,)) if name in LINEAR | GATES else (math.prod(inner), ())
    first = inputs if part.inputs_first else ()
    last = () if part.inputs_first else inputs
    if part.view is None:
        return Slot("", (), (*first, outputs, *last), bool(last), part.name)
    shape, index = part.view(config)
    stored = shape if part.rows else (math.prod(shape),)
    return Slot(
        "", (), (*first, *stored, *last), bool(last), part.name, (*first, *shape, *last), (*[slice(None)] * len(first), *index)
    )


def leaf_name(path: tuple) -> str:
    """Return the path of a leaf in the tree, such as "layers.q"."""
    return ".".join(entry.key for entry in path)
