"""Trees of Flax become the models that files of the same weights make, bit for bit."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import numpy as np
import pytest
from flax import nnx
from flax.traverse_util import flatten_dict, unflatten_dict

import sinkjax
from tests.model import families as small

TOKENS = np.random.default_rng(1).integers(2, small.VOCABULARY, (1, 11))
TABLES = ("embed_tokens", "wte", "wpe")


def random(family: str, seed: int = 1) -> tuple[Any, sinkjax.Model]:
    """The config of a small random model of a family, and the model; Gemmas as they are published, tied and without biases."""
    drawn = small.DRAWS[family](small.Turn(seed))
    if family.startswith("gemma"):
        drawn.tie_word_embeddings, drawn.attention_bias = True, False
    live = small.random_model(drawn, seed).float()
    return live.config, sinkjax.from_transformers(live)


def as_linen(arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """The tree that a Flax model of transformers has of these tensors: linear layers transposed, whatever the family stores."""
    flat = {}
    for name, array in arrays.items():
        *path, module, last = name.split(".")
        leaf = last
        if last == "weight":
            leaf = "embedding" if module in TABLES else "scale" if array.ndim == 1 else "kernel"
        flat[*path, module, leaf] = array.T if leaf == "kernel" else array
    return unflatten_dict(flat)


def as_gemma(arrays: dict[str, np.ndarray], config: sinkjax.Config, family: str, turned: bool) -> dict[str, Any]:
    """The flat tree that the Gemma library reads: each module's path joined by "/", its arrays below it."""

    def heads(name: str, count: int) -> np.ndarray:
        return arrays[name].reshape(count, config.head_dim, config.width).transpose(0, 2, 1)

    tree = {
        "transformer/embedder": {"input_embedding": arrays["model.embed_tokens.weight"]},
        "transformer/final_norm": {"scale": arrays["model.norm.weight"]},
    }
    norms = {"pre_attention_norm": "input_layernorm", "pre_ffw_norm": "post_attention_layernorm"}
    if family != "gemma":
        norms |= {"post_attention_norm": "post_attention_layernorm", "pre_ffw_norm": "pre_feedforward_layernorm"}
        norms |= {"post_ffw_norm": "post_feedforward_layernorm"}
    if family == "gemma3_text":
        norms |= {"attn/_query_norm": "self_attn.q_norm", "attn/_key_norm": "self_attn.k_norm"}
    for layer in range(config.layers):
        here, there = f"transformer/layer_{layer}", f"model.layers.{layer}"
        q = heads(f"{there}.self_attn.q_proj.weight", config.heads)
        k, v = (heads(f"{there}.self_attn.{name}_proj.weight", config.kv_heads) for name in "kv")
        if config.heads == config.kv_heads:
            tree[f"{here}/attn/qkv_einsum"] = {"w": np.stack([q, k, v])}
        else:
            tree |= {f"{here}/attn/q_einsum": {"w": q}, f"{here}/attn/kv_einsum": {"w": np.stack([k, v])}}
        out = arrays[f"{there}.self_attn.o_proj.weight"]
        tree[f"{here}/attn/attn_vec_einsum"] = {"w": out.reshape(config.width, config.heads, -1).transpose(1, 2, 0)}
        gating = np.stack([arrays[f"{there}.mlp.{name}_proj.weight"] for name in ("gate", "up")])
        tree[f"{here}/mlp/gating_einsum"] = {"w": gating if turned else gating.transpose(0, 2, 1)}
        tree[f"{here}/mlp/linear"] = {"w": arrays[f"{there}.mlp.down_proj.weight"].T}
        tree |= {f"{here}/{mine}": {"scale": arrays[f"{there}.{theirs}.weight"]} for mine, theirs in norms.items()}
    return tree


def same(first: sinkjax.Model, second: sinkjax.Model) -> None:
    assert first.config == second.config
    jax.tree.map(np.testing.assert_array_equal, first.params, second.params)
    one, two = (np.asarray(sinkjax.forward(model.params, TOKENS, model.config).logits) for model in (first, second))
    assert one.tobytes() == two.tobytes()


@pytest.mark.parametrize("family", ["llama", "gpt2", "opt", "gemma"])
def test_the_tree_of_a_linen_model_makes_the_same_model_to_the_bit(family):
    config, model = random(family)
    tree = as_linen(sinkjax.to_arrays(model))
    same(sinkjax.from_flax(config, tree), model)
    same(sinkjax.from_flax(model.config, {"params": tree}, family=family), model)
    boxed = unflatten_dict({path: nn.Partitioned(leaf, (None,) * leaf.ndim) for path, leaf in flatten_dict(tree).items()})
    same(sinkjax.from_flax(config, boxed), model)


def test_a_state_of_nnx_makes_the_same_model():
    config, model = random("llama")
    flat = flatten_dict(as_linen(sinkjax.to_arrays(model)))
    numbered = {tuple(int(key) if key.isdigit() else key for key in path): nnx.Param(leaf) for path, leaf in flat.items()}
    same(sinkjax.from_flax(config, nnx.State(unflatten_dict(numbered))), model)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("family", "seed"), [("gemma", 0), ("gemma", 1), ("gemma", 2), ("gemma2", 1), ("gemma3_text", 1)])
def test_a_checkpoint_of_the_gemma_library_makes_the_same_model(family, seed, turned):
    config, model = random(family, seed)
    tree = as_gemma(sinkjax.to_arrays(model), model.config, family, turned)
    same(sinkjax.from_flax(config, tree), model)
    nested = unflatten_dict(
        {tuple(f"{path}/{name}".split("/")): leaf for path, own in tree.items() for name, leaf in own.items()}
    )
    same(sinkjax.from_flax(config, nested), model)
