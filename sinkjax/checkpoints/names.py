"""Which stored tensor fills which part of which leaf: tables of names, and slots derived from the abstract parameter tree."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import jax

from sinkjax.model import params
from sinkjax.model.config import Config

HUGGING_FACE = {
    "embed": "model.embed_tokens.weight",
    "final_norm": "model.norm.weight",
    "unembed": "lm_head.weight",
    "attn_norm": "model.layers.{}.input_layernorm.weight",
    "q": "model.layers.{}.self_attn.q_proj.weight",
    "k": "model.layers.{}.self_attn.k_proj.weight",
    "v": "model.layers.{}.self_attn.v_proj.weight",
    "o": "model.layers.{}.self_attn.o_proj.weight",
    "q_bias": "model.layers.{}.self_attn.q_proj.bias",
    "k_bias": "model.layers.{}.self_attn.k_proj.bias",
    "v_bias": "model.layers.{}.self_attn.v_proj.bias",
    "o_bias": "model.layers.{}.self_attn.o_proj.bias",
    "mlp_norm": "model.layers.{}.post_attention_layernorm.weight",
    "gate": "model.layers.{}.mlp.gate_proj.weight",
    "up": "model.layers.{}.mlp.up_proj.weight",
    "down": "model.layers.{}.mlp.down_proj.weight",
    "gate_bias": "model.layers.{}.mlp.gate_proj.bias",
    "up_bias": "model.layers.{}.mlp.up_proj.bias",
    "down_bias": "model.layers.{}.mlp.down_proj.bias",
}

GGUF = {
    "embed": "token_embd.weight",
    "final_norm": "output_norm.weight",
    "unembed": "output.weight",
    "attn_norm": "blk.{}.attn_norm.weight",
    "q": "blk.{}.attn_q.weight",
    "k": "blk.{}.attn_k.weight",
    "v": "blk.{}.attn_v.weight",
    "o": "blk.{}.attn_output.weight",
    "q_bias": "blk.{}.attn_q.bias",
    "k_bias": "blk.{}.attn_k.bias",
    "v_bias": "blk.{}.attn_v.bias",
    "o_bias": "blk.{}.attn_output.bias",
    "mlp_norm": "blk.{}.ffn_norm.weight",
    "gate": "blk.{}.ffn_gate.weight",
    "up": "blk.{}.ffn_up.weight",
    "down": "blk.{}.ffn_down.weight",
    "gate_bias": "blk.{}.ffn_gate.bias",
    "up_bias": "blk.{}.ffn_up.bias",
    "down_bias": "blk.{}.ffn_down.bias",
}

# Linear layers: stored [outputs, inputs], kept here input-first. The embedding is a table of rows and stays as it is.
LINEAR = frozenset({"q", "k", "v", "o", "gate", "up", "down", "unembed"})


@dataclass(frozen=True)
class Slot:
    """Where one stored tensor goes: `leaf` of the tree, `layer` of its leading axis (None: all of it).

    stored: the shape the file must have. transposed: whether inputs and outputs change places on the way. pattern: the name of
    the tensor, "{}" standing for the layer.
    """

    leaf: str
    layer: int | None
    stored: tuple[int, ...]
    transposed: bool
    pattern: str


def slots(config: Config, names: Mapping[str, str] | None) -> dict[str, Slot]:
    """Tensor name -> slot, one for every stored tensor that the parameters of `config` need, in the order of the tree.

    names: leaf name -> tensor name; None: every leaf is one tensor, stored as it is here, under its path.
    """
    found = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(params.abstract(config)):
        where, name = leaf_name(path), path[-1].key
        if names is None:
            found[where] = Slot(where, None, leaf.shape, False, where)
            continue
        stacked = leaf.axes[0] == "layer"
        size = math.prod(leaf.shape[1:] if stacked else leaf.shape)
        stored = (size // leaf.fan_in, leaf.fan_in) if name in {*LINEAR, "embed"} else (size,)
        for layer in range(config.layers) if stacked else [None]:
            found[names[name].format(layer)] = Slot(where, layer, stored, name in LINEAR, names[name])
    return found


def leaf_name(path: tuple) -> str:
    """The path of a leaf in the tree, as "layers.q"."""
    return ".".join(entry.key for entry in path)
