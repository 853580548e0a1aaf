"""Refusals of the architecture record, of parameters that do not fit it, and of batches that do not fit a model."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from sinkjax.model import params


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
