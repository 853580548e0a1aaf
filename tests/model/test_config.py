"""Refusals of the architecture record, of parameters that do not fit it, and of batches that do not fit a model."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sinkjax
from sinkjax import Probe, SinkjaxError
from sinkjax.model import params
from sinkjax.model.config import RMSNorm
from sinkjax.model.rotary import DynamicScaling, Rope

IMPOSSIBLE: dict[str, dict[str, Any]] = {
    "^layers .*at least 1, not 0": {"layers": 0},
    "^heads .*int .*not '6'": {"heads": "6"},
    "vocab_size .*at least 1 .*not 0": {"vocab_size": 0},
    "6 query heads .* 4 key-value": {"kv_heads": 4},
    "an even head_dim, not 7": {"head_dim": 7},
    "windows has 2 entries for 3 layers": {"windows": (4, 4)},
    "window .*at least 1 key": {"windows": (4, None, 0)},
    "head_dim of at least 4, not 2": {"head_dim": 2, "position": Rope(10_000.0, DynamicScaling(2.0, 32))},
    "activation 'silo' .*'silu'.*gelu, gelu_bloom, gelu_tanh, relu, relu2, silu": {"activation": "silo"},
}


@pytest.mark.parametrize("message", IMPOSSIBLE)
def test_impossible_architectures(tiny_config, message: str) -> None:
    with pytest.raises(SinkjaxError, match=message):
        dataclasses.replace(tiny_config, **IMPOSSIBLE[message])


def test_impossible_norms_and_rotary_bases() -> None:
    with pytest.raises(SinkjaxError, match=r"epsilon .*at least 0, not nan"):
        RMSNorm(float("nan"))
    with pytest.raises(SinkjaxError, match="rotary base must be positive"):
        Rope(0.0)


@pytest.mark.parametrize("name", ["norm", "position", "kv_heads", "head_dim", "tied"])
def test_nothing_that_a_checkpoint_must_state_has_a_default(tiny_config, name: str) -> None:
    stated = {field.name: getattr(tiny_config, field.name) for field in dataclasses.fields(tiny_config) if field.name != name}
    with pytest.raises(TypeError, match=name):
        sinkjax.Config(**stated)


def test_configs_are_equal_by_value_so_that_compiled_code_is_found_again(tiny_config) -> None:
    again = dataclasses.replace(tiny_config, norm=RMSNorm(tiny_config.norm.eps), position=Rope(tiny_config.position.theta))
    assert again == tiny_config
    assert hash(again) == hash(tiny_config)
    assert dataclasses.replace(tiny_config, position=Rope(1e5)) != tiny_config


T = 6
TOKENS = np.arange(12).reshape(2, T)
UNFIT: dict[str, tuple[Any, Any]] = {
    r"token 61 \(prompt 1, position 3\) .* 61": (np.where(TOKENS == 9, 61, TOKENS), None),
    r"token -1 \(prompt 0, position 0\)": (TOKENS - 1, None),
    r"tokens .*int \[B, T\], not float64 \(2, 6\)": (TOKENS * 1.0, None),
    r"tokens .*int \[B, T\], not int64 \(6,\)": (TOKENS[0], None),
    r"tokens .*array, .*different lengths": ([[1, 2], [3]], None),
    r"the batch is empty": (TOKENS[:, :0], None),
    r"batch is empty: .*no prompt": (TOKENS[:0], None),
    r"65 positions .*context of 64": (np.zeros((1, 65), int), None),
    r"prompt 1 .*length 0; .* 1 to 6 tokens": (TOKENS, [6, 0]),
    r"prompt 0 .*length 7; .* 1 to 6 tokens": (TOKENS, [7, 6]),
    r"lengths .*int \[2\], not int64 \(3,\)": (TOKENS, [1, 2, 3]),
    r"lengths .*int \[2\], not float64 \(2,\)": (TOKENS, [1.0, 2.0]),
}


@pytest.mark.parametrize("message", UNFIT)
@pytest.mark.parametrize("device", [False, True], ids=["host", "device"])
def test_batches_that_do_not_fit(tiny_params, tiny_config, message: str, device: bool) -> None:
    tokens, lengths = UNFIT[message]
    if device and isinstance(tokens, np.ndarray):
        with jax.enable_x64(True):
            tokens = jnp.asarray(tokens)
    with pytest.raises(SinkjaxError, match=message) as refused:
        sinkjax.forward(tiny_params, tokens, tiny_config, lengths=lengths)
    assert "\n" not in str(refused.value)


def test_vectors_for_a_model_without_a_vocabulary(tiny_params, tiny_config) -> None:
    bare = dataclasses.replace(tiny_config, vocab_size=None)
    weights = {name: tiny_params[name] for name in ("layers", "final_norm")}
    for wrong in (TOKENS, np.zeros((2, 6, 31), np.float32), np.zeros((2, 6, 32), int)):
        with pytest.raises(SinkjaxError, match=r"takes float \[B, T, 32\], not"):
            sinkjax.forward(weights, wrong, bare)


def test_other_wrong_arguments(tiny_params, tiny_config) -> None:
    with pytest.raises(SinkjaxError, match=r"precision 'hihg' .*'high'"):
        sinkjax.forward(tiny_params, TOKENS, tiny_config, precision="hihg")
    with pytest.raises(SinkjaxError, match=r"probe .*'nll'; Probe.of"):
        sinkjax.forward(tiny_params, TOKENS, tiny_config, probe="nll")
    with pytest.raises(SinkjaxError, match=r"not an edit: 3"):
        sinkjax.forward(tiny_params, TOKENS, tiny_config, 3)
    with pytest.raises(SinkjaxError, match="attention: layer 5"):
        sinkjax.forward(tiny_params, TOKENS, tiny_config, probe=Probe(attention=(5,)))


def test_parameters_that_do_not_fit_are_named(tiny_params, tiny_config) -> None:
    layers = {name: leaf for name, leaf in tiny_params["layers"].items() if name != "q"}
    with pytest.raises(SinkjaxError, match=r"\['layers'\]\['q'\]: None .*\(3, 32, 6, 8\)"):
        sinkjax.forward(tiny_params | {"layers": layers}, TOKENS, tiny_config)
    with pytest.raises(SinkjaxError, match=r"\['unembed'\]: \(32, 61\) instead of None"):
        params.check(tiny_params, dataclasses.replace(tiny_config, tied=True))


def test_float64_is_refused_where_it_is_not_enabled(tiny_params, tiny_config) -> None:
    wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tiny_params)
    with pytest.raises(SinkjaxError, match=r"float64 parameters need .*jax_enable_x64"):
        sinkjax.forward(wide, TOKENS, tiny_config)
    with pytest.raises(SinkjaxError, match=r"dtype \"float64\" needs .*jax_enable_x64"):
        params.init(tiny_config, seed=0, dtype="float64")
    with pytest.raises(SinkjaxError, match=r"dtype 'float23' .*'float32'"):
        params.init(tiny_config, seed=0, dtype="float23")
    with jax.enable_x64(True):
        assert sinkjax.forward(wide, TOKENS, tiny_config).logits.dtype == np.float64


def test_a_leaf_does_not_depend_on_other_leaves(tiny_config) -> None:
    """Turning on biases and tying draws the same numbers for what is common to both models."""
    plain = params.init(tiny_config, seed=3)
    other = params.init(dataclasses.replace(tiny_config, tied=True, qkv_bias=True, mlp_bias=True), seed=3)
    np.testing.assert_array_equal(plain["layers"]["o"], other["layers"]["o"])
    np.testing.assert_array_equal(plain["embed"], other["embed"])
    again = params.init(tiny_config, seed=4)
    assert (np.asarray(plain["layers"]["o"]) != np.asarray(again["layers"]["o"])).all()
    assert params.count(tiny_config) == sum(leaf.size for leaf in jax.tree.leaves(plain))


def test_layers_and_matrices_start_at_the_scale_of_their_inputs(tiny_config) -> None:
    drawn = params.init(dataclasses.replace(tiny_config, mlp_width=500), seed=0)["layers"]
    for name, fan_in in (("q", 32), ("o", 48), ("gate", 32), ("down", 500)):
        assert float(drawn[name].std()) == pytest.approx(fan_in**-0.5, rel=0.1), name
    assert (np.asarray(drawn["q"][0]) != np.asarray(drawn["q"][1])).all()
