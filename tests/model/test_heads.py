"""Norms and gates of heads: a few lines of numpy, Qwen3 of transformers, and what each means at the sites."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

import sinkjax
from sinkjax import Capture, Config, Probe, SinkjaxError, Site
from sinkjax.checkpoints.model import Model
from sinkjax.model import params
from sinkjax.model.config import RMSNorm
from sinkjax.model.heads import ConstantGate, ElementGate, HeadGate, HeadNorm, NonSparseGate, SharedGate, ValueGate, ValueScale
from sinkjax.model.rotary import Rope
from tests.model.variants import bare, draw

SHAPE = {"heads": 4, "kv_heads": 2, "head_dim": 5}
OPTIONS: dict[str, dict[str, Any]] = {
    "head norm": {"head_norm": HeadNorm()},
    "a gain for each head": {"head_norm": HeadNorm(gain="head", eps=1e-3)},
    "a gain and an offset for each head": {"head_norm": HeadNorm(gain="head", offset=True)},
    "a shared gain and offset": {"head_norm": HeadNorm(offset=True)},
    "QK-norm": {"qk_norm": RMSNorm(1e-5)},
    "head gate": {"gate": HeadGate()},
    "element gate": {"gate": ElementGate()},
    "value gate": {"gate": ValueGate()},
    "shared gate": {"gate": SharedGate()},
    "constant gate": {"gate": ConstantGate()},
    "non-sparse gate": {"gate": NonSparseGate()},
    "value scale": {"gate": ValueScale()},
    "a shared gate on summed heads": {"gate": SharedGate(), "summed_heads": True},
    "norms and a gate": {"head_norm": HeadNorm(), "qk_norm": RMSNorm(1e-6), "gate": ElementGate()},
}


def rms(x: np.ndarray, gain: np.ndarray, eps: float) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * gain


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def by_numpy(weights: dict, x: np.ndarray, config: Config) -> np.ndarray:
    """[T, d] to [T, d]: softmax attention with a residual sum, query heads beside the key-value head they read."""
    for layer in range(config.layers):
        w = {name: leaf[layer] for name, leaf in weights["layers"].items()}
        q, k, v = (np.einsum("td,dhn->htn", x, w[name]) for name in "qkv")
        if config.qk_norm:
            q, k = rms(q, w["q_norm"], config.qk_norm.eps), rms(k, w["k_norm"], config.qk_norm.eps)
        if isinstance(config.gate, ValueGate):
            v = v * sigmoid(np.einsum("td,dhn->htn", x, w["value_gate"]))
        if isinstance(config.gate, ValueScale):
            v = v * w["value_scale"][:, None, None]
        k, v = (np.repeat(part, config.group, axis=0) for part in (k, v))
        powers = np.tril(np.exp(q @ k.transpose(0, 2, 1)))
        o = (powers / powers.sum(-1, keepdims=True)) @ v
        if config.head_norm:
            gain = w["head_norm"][:, None] if config.head_norm.gain == "head" else w["head_norm"]
            o = rms(o, gain, config.head_norm.eps)
            if config.head_norm.offset:
                o = o + (w["head_norm_offset"][:, None] if config.head_norm.gain == "head" else w["head_norm_offset"])
        if isinstance(config.gate, HeadGate):
            o = o * sigmoid(x @ w["head_gate"]).T[..., None]
        if isinstance(config.gate, ElementGate):
            o = o * sigmoid(np.einsum("td,dhn->htn", x, w["element_gate"]))
        if isinstance(config.gate, SharedGate):
            o = o * sigmoid(x @ w["shared_gate"])
        if isinstance(config.gate, ConstantGate):
            o = o * sigmoid(w["constant_gate"])[:, None]
        if isinstance(config.gate, NonSparseGate):
            o = o * (1 + sigmoid(np.einsum("td,dhn->htn", x, w["element_gate"]))) / 2
        x = x + (o.sum(0) @ w["o"] if config.summed_heads else np.einsum("htn,hnd->td", o, w["o"]))
    return x


@pytest.mark.parametrize("name", OPTIONS)
def test_norms_and_gates_give_what_numpy_gives_and_finite_gradients(name: str, rng: np.random.Generator) -> None:
    config = bare(**SHAPE, **OPTIONS[name])
    weights, x = draw(config), rng.standard_normal((2, 9, 7))

    def loss(weights: dict) -> tuple:
        output = sinkjax.forward(weights, x, config, sinkjax.edit("weights", "scale", 1.0), Probe(), [9, 5]).output
        return (output[0] ** 2).sum(), output

    with jax.enable_x64(True):
        slopes, output = jax.jit(jax.grad(loss, has_aux=True))(weights)
    for prompt, length in enumerate((9, 5)):
        want = by_numpy(weights, x[prompt, :length], config)
        np.testing.assert_allclose(output[prompt, :length], want, rtol=1e-11, atol=1e-11)
    leaves = {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(slopes)}
    assert all(np.isfinite(leaf).all() and leaf.any() for leaf in leaves.values()), leaves


def test_a_new_norm_starts_as_one_and_its_parameters_have_the_shapes_of_their_record() -> None:
    layers = params.init(bare(**SHAPE, head_norm=HeadNorm(gain="head", offset=True), qk_norm=RMSNorm(0)), seed=0)["layers"]
    shapes = {"head_norm": (2, 4, 5), "head_norm_offset": (2, 4, 5), "q_norm": (2, 5), "k_norm": (2, 5)}
    assert {name: layers[name].shape for name in shapes} == shapes
    assert not layers["head_norm_offset"].any()
    assert all((layers[name] == 1).all() for name in ("head_norm", "q_norm", "k_norm"))
    assert params.abstract(bare(head_norm=HeadNorm()))["layers"]["head_norm"].shape == (2, 7)
    gates = {HeadGate(): ("head_gate", (2, 7, 4)), ElementGate(): ("element_gate", (2, 7, 4, 5))}
    gates |= {ValueGate(): ("value_gate", (2, 7, 2, 5)), SharedGate(): ("shared_gate", (2, 7, 5))}
    gates |= {ConstantGate(): ("constant_gate", (2, 4, 5)), NonSparseGate(): ("element_gate", (2, 7, 4, 5))}
    for gate, (name, shape) in gates.items():
        leaf = params.init(bare(**SHAPE, gate=gate), seed=0)["layers"][name]
        assert leaf.shape == shape
        assert leaf.any() == (gate != ConstantGate())  # which begins as a gate of one half


def test_a_head_norm_makes_the_size_of_a_heads_output_nothing(rng: np.random.Generator) -> None:
    """So a mean of many values, small as it is, enters W_O as large as the one value of the first row (Li et al. 2026)."""
    config = bare(layers=1, head_norm=HeadNorm(eps=0.0))
    weights, x = draw(config), rng.standard_normal((1, 9, 7))
    probe = Probe(capture=(Capture(Site.HEAD_OUT), Capture(Site.ATTN_OUT)))
    with jax.enable_x64(True):
        plain, scaled = (
            sinkjax.forward(weights, x, config, edit, probe).record
            for edit in ((), sinkjax.edit("head_out", "scale", 30.0, queries=4))
        )
    np.testing.assert_allclose(scaled["attn_out"], plain["attn_out"], rtol=1e-10)
    np.testing.assert_allclose(scaled["head_out"][:, :, 4], 30 * np.asarray(plain["head_out"])[:, :, 4], rtol=1e-12)


def test_queries_keys_and_values_are_seen_as_attention_uses_them(rng: np.random.Generator) -> None:
    config = bare(**SHAPE, layers=1, qk_norm=RMSNorm(0.0), gate=ValueGate())
    weights, x = draw(config), rng.standard_normal((1, 9, 7))
    for name in ("q_norm", "k_norm"):
        weights["layers"][name] = np.ones_like(weights["layers"][name])
    weights["layers"]["value_gate"] = weights["layers"]["value_gate"] * 0  # a gate of one half
    with jax.enable_x64(True):
        record = sinkjax.forward(weights, x, config, probe=Probe(query_norm=True, key_norm=True, value_norm=True)).record
    np.testing.assert_allclose(record["query_norm"], 5**0.5, rtol=1e-12)
    np.testing.assert_allclose(record["key_norm"], 5**0.5, rtol=1e-12)
    values = np.einsum("btd,dhn->bhtn", x, weights["layers"]["v"][0])
    np.testing.assert_allclose(record["value_norm"][:, 0], np.linalg.norm(values, axis=-1) / 2, rtol=1e-12)


def test_qk_norm_is_that_of_qwen3_in_transformers(rng: np.random.Generator) -> None:
    config = Config(
        layers=2, width=16, heads=4, kv_heads=2, head_dim=6, mlp_width=24, vocab_size=53, context=32, norm=RMSNorm(1e-5),
        position=Rope(10_000.0), activation="silu", tied=False, qk_norm=RMSNorm(1e-5),
    )  # fmt: skip
    weights = draw(config, "float64")
    theirs = Qwen3ForCausalLM(
        Qwen3Config(
            num_hidden_layers=2, hidden_size=16, num_attention_heads=4, num_key_value_heads=2, head_dim=6, rms_norm_eps=1e-5,
            intermediate_size=24, vocab_size=53, max_position_embeddings=32, tie_word_embeddings=False,
        )
    ).double()  # fmt: skip
    names = {"q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.o_proj"}
    names |= {"q_norm": "self_attn.q_norm", "k_norm": "self_attn.k_norm", "gate": "mlp.gate_proj", "up": "mlp.up_proj"}
    names |= {"down": "mlp.down_proj", "attn_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm"}
    state = {"model.embed_tokens.weight": weights["embed"], "lm_head.weight": weights["unembed"].T}
    state["model.norm.weight"] = weights["final_norm"]
    for leaf, name in names.items():
        for layer, value in enumerate(weights["layers"][leaf]):
            matrix = value if value.ndim == 1 else value.reshape(-1, 16).T if leaf == "o" else value.reshape(value.shape[0], -1).T
            state[f"model.layers.{layer}.{name}.weight"] = matrix
    theirs.load_state_dict({name: torch.as_tensor(np.ascontiguousarray(value)) for name, value in state.items()}, strict=False)
    tokens = rng.integers(0, 53, (2, 20))
    with jax.enable_x64(True), torch.no_grad():
        ours = sinkjax.forward(weights, tokens, config).logits
        np.testing.assert_allclose(ours, theirs(torch.as_tensor(tokens)).logits, rtol=1e-5, atol=2e-6)  # their norms are float32


def test_edits_and_sweeps_work_with_all_of_them(rng: np.random.Generator) -> None:
    config = bare(**SHAPE, **OPTIONS["norms and a gate"])
    model = Model(config, jax.tree.map(jnp.asarray, draw(config, "float32")), None, {"kind": "toy"})
    x = rng.standard_normal((2, 9, 7)).astype(np.float32)
    edits = [sinkjax.compose(), sinkjax.mask_key(0, layers=1), sinkjax.edit("head_out", "scale", 0.0, heads=1)]
    found = sinkjax.sweep(model, x, edits, probe=Probe(attention_received=True), progress=False)
    for number, edit in enumerate(edits):
        record = sinkjax.forward(model.params, x, config, edit).record
        np.testing.assert_allclose(found["attention_received"][number], record["attention_received"], rtol=1e-5, atol=1e-6)


def test_impossible_norms_and_gates() -> None:
    with pytest.raises(SinkjaxError, match=r"gain 'heads' .*'head'"):
        HeadNorm(gain="heads")
    with pytest.raises(SinkjaxError, match=r"epsilon .*at least 0, not -1"):
        HeadNorm(eps=-1)
    with pytest.raises(SinkjaxError, match=r"gate must be .*sinkjax\.model\.heads .*'head'"):
        dataclasses.replace(bare(), gate="head")
