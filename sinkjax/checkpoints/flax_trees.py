"""Flax models in memory: parameter trees with the names of transformers or of the Gemma library.

A leaf is named by its path. Flax names tensors differently from PyTorch, and stores matrices transposed:

    in the tree             in a file                                    array
    (path).kernel           (path).weight                                transposed
    (path).embedding        (path).weight                                as it is
    (path).scale            (path).weight                                as it is
    any other               the same                                     as it is

So are named the Flax models of transformers (FlaxLlamaForCausalLM, FlaxGPT2LMHeadModel, ...), and any model of linen or NNX whose
modules have the names of transformers. The Gemma library has names of its own (N, K: heads of queries and of keys; D: width;
H: of a head; F: of the MLP):

    embedder.input_embedding [V, D], final_norm.scale [D]
    layer_(l).attn.q_einsum.w [N, D, H], .kv_einsum.w [2, K, D, H]       or, with as many key heads, .qkv_einsum.w [3, N, D, H]
    layer_(l).attn.attn_vec_einsum.w [N, H, D], ._query_norm.scale [H], ._key_norm.scale [H]
    layer_(l).mlp.gating_einsum.w [2, F, D] or [2, D, F]: gate, then up; .linear.w [F, D]; both without .w too
    layer_(l).pre_attention_norm.scale, .post_attention_norm.scale, .pre_ffw_norm.scale, .post_ffw_norm.scale [D]
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax

from sinkjax.checkpoints.in_memory import from_arrays
from sinkjax.checkpoints.model import Model
from sinkjax.config_files.checks import refuse
from sinkjax.errors import short
from sinkjax.model.config import Config
from sinkjax.runtime.settings import fixed_settings

SPELLED = {"kernel": "weight", "embedding": "weight", "scale": "weight"}
GEMMA = "embedder.input_embedding"  # this path identifies a tree of the Gemma library
GEMMA_LAYER = re.compile(r"layer_(\d+)\.(.+)")


@fixed_settings
def from_flax(
    config: Config | Mapping[str, Any] | str | Path | Any,
    tree: Any,
    family: str | None = None,
    tokenizer: Any = None,
    dtype: str | None = None,
    ignore_keys: Collection[str] = (),
    assume: Mapping[str, Any] | None = None,
    check: bool = True,
) -> Model:
    """Make a model from the parameters of a Flax model in memory: linen, NNX or the Gemma library.

        flax_model = transformers.FlaxGPT2LMHeadModel.from_pretrained("gpt2")            # needs transformers 4
        model = sinkjax.from_flax(flax_model.config, flax_model.params)
        model = sinkjax.from_flax("config.json", nnx.state(module, nnx.Param), family="llama")
        model = sinkjax.from_flax("gemma-3-1b-it", gemma.gm.ckpts.load_params(path))     # with the config.json of the hub

    Args:
        config: A config.json, its folder or its mapping, a config of transformers, or a `sinkjax.Config`, as for `from_arrays`.
        tree: The parameters: nested mappings (for linen, with or without the outer "params") or an `nnx.State`, with names as in
            the table at the top of this module.
        family: The model type whose names are used, if the config does not state it; required with a `sinkjax.Config`.
        tokenizer, dtype, ignore_keys, assume, check: See `from_arrays`; `ignore_keys` lists names as in files.

    Returns:
        The model.

    Raises:
        SinkjaxError: Any error of `from_arrays`, with the leaf's name in files, its shape and the shape that the config
            requires; the tree has no leaves, two leaves with the same name, or a malformed stack of the Gemma library.
    """
    leaves = dict(named_leaves(tree))
    bare = not leaves or "" in leaves  # a bare leaf has no name
    refuse(bare, f"a tree of Flax holds arrays in nested mappings, but {short(tree)} has none")
    unnamed = isinstance(config, Config) and family is None
    refuse(unnamed, "a sinkjax.Config does not say how the leaves are named; give a family, such as family='llama'")
    if f"transformer.{GEMMA}" in leaves:
        leaves = {path.removeprefix("transformer."): array for path, array in leaves.items()}
    arrays: dict[str, Any] = {}
    for path, array in leaves.items():
        for name, part in _gemma(path, array, leaves) if GEMMA in leaves else [_spelled(path, array)]:
            refuse(name in arrays, f"two leaves map to the tensor {name}; one of them is {path}")
            arrays[name] = part
    model = from_arrays(config, arrays, family, tokenizer, dtype, ignore_keys, assume, check)
    return Model(model.config, model.params, model.tokenizer, {**model.source, "name": "a Flax tree"})


def named_leaves(tree: Any) -> Iterator[tuple[str, Any]]:
    """Return the leaves of a tree by path, "layers.0.norm.scale", without the wrappers of linen and NNX."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        name = jax.tree_util.keystr(path, simple=True, separator=".").replace("/", ".")  # the Gemma library joins names by "/"
        # "params" is around a tree of linen, "value" within a variable of NNX and an array of linen that states its sharding.
        yield name.removeprefix("params.").removesuffix(".value"), leaf


def _spelled(path: str, array: Any) -> tuple[str, Any]:
    """A leaf under its name in files."""
    *modules, last = path.split(".")
    return ".".join([*modules, SPELLED.get(last, last)]), array.T if last == "kernel" else array


def _outputs_first(array: Any) -> Any:
    """Heads' matrices [N, D, H] as one of a file, [N H, D]."""
    return array.swapaxes(1, 2).reshape(-1, array.shape[1])


def _gemma(path: str, array: Any, leaves: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The parts of a leaf of the Gemma library by their names in files; an unknown leaf keeps its name."""
    path = path.removesuffix(".w")
    in_layer = GEMMA_LAYER.fullmatch(path)
    if in_layer is None:
        return [(GEMMA_WHOLE.get(path, path), array)]
    layer, rest = in_layer.groups()
    place = f"model.layers.{layer}"
    if rest in GEMMA_STACKS:
        names = GEMMA_STACKS[rest]
        refuse(len(array) != len(names), f"{path} of the tree must stack {len(names)} matrices, and has the shape {array.shape}")
        if rest.startswith("attn"):
            array = [_outputs_first(part) for part in array]
        elif array.shape[1] == leaves[GEMMA].shape[1]:  # [2, D, F]
            array = array.swapaxes(1, 2)
        return [(f"{place}.{name}.weight", part) for name, part in zip(names, array, strict=True)]
    if rest in GEMMA_MATRICES:
        name, turned = GEMMA_MATRICES[rest]
        return [(f"{place}.{name}.weight", turned(array))]
    norms = GEMMA_NORMS
    if f"layer_{layer}.post_ffw_norm.scale" not in leaves:  # the first Gemma
        norms = norms | {"pre_ffw_norm.scale": "post_attention_layernorm"}
    return [(f"{place}.{norms[rest]}.weight" if rest in norms else path, array)]


GEMMA_WHOLE = {GEMMA: "model.embed_tokens.weight", "final_norm.scale": "model.norm.weight"}
# Path in a layer -> module in a file, and how its matrix becomes [outputs, inputs].
GEMMA_MATRICES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "attn.q_einsum": ("self_attn.q_proj", _outputs_first),
    "attn.attn_vec_einsum": ("self_attn.o_proj", lambda array: array.reshape(-1, array.shape[2]).T),
    "mlp.linear": ("mlp.down_proj", lambda array: array.T),
}
GEMMA_STACKS = {
    "attn.qkv_einsum": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attn.kv_einsum": ("self_attn.k_proj", "self_attn.v_proj"),
    "mlp.gating_einsum": ("mlp.gate_proj", "mlp.up_proj"),
}
GEMMA_NORMS = {
    "attn._query_norm.scale": "self_attn.q_norm",
    "attn._key_norm.scale": "self_attn.k_norm",
    "pre_attention_norm.scale": "input_layernorm",
    "post_attention_norm.scale": "post_attention_layernorm",
    "pre_ffw_norm.scale": "pre_feedforward_layernorm",
    "post_ffw_norm.scale": "post_feedforward_layernorm",
}
