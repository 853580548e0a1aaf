"""Modules of NNX, with the names of transformers, make the model of their parameters."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import sinkjax
from sinkjax.errors import SinkjaxError
from sinkjax.interop.nnx import from_nnx


class Node(nnx.Module):
    """A module with whatever submodules are put into it."""


def module_of(arrays: dict[str, Any]) -> Node:
    """Nest modules by the names of files, with Flax's names and layout of leaves."""
    top = Node()
    for name, array in arrays.items():
        *path, last = name.split(".")
        node = top
        for part in path:
            if not hasattr(node, part):
                setattr(node, part, Node())
            node = getattr(node, part)
        linear = last == "weight" and array.ndim == 2 and "embed" not in name
        leaf = "kernel" if linear else "embedding" if array.ndim == 2 else "scale" if last == "weight" else last
        setattr(node, leaf, nnx.Param(jnp.asarray(array.T if linear else array)))
    top.cache = nnx.Variable(jnp.zeros(3))  # not a parameter
    return top


@pytest.fixture
def model(tiny_config, tiny_params) -> sinkjax.Model:
    return sinkjax.Model(tiny_config, tiny_params, None, {"model_type": "llama"})


def test_a_module_makes_the_model_of_its_present_parameters(model):
    module = module_of(sinkjax.to_arrays(model, "llama"))
    found = from_nnx(module, model.config, family="llama")
    jax.tree.map(np.testing.assert_array_equal, found.params, model.params)
    module.config = model.config
    module.model.norm.scale[...] *= 2
    again = from_nnx(module, family="llama")
    changed = sinkjax.to_arrays(again, "llama")
    wanted = sinkjax.to_arrays(model, "llama")
    wanted["model.norm.weight"] *= 2
    for name, array in wanted.items():
        np.testing.assert_array_equal(changed[name], array)


def test_what_is_missing_is_named(model):
    module = module_of(sinkjax.to_arrays(model, "llama"))
    with pytest.raises(SinkjaxError, match="this Node has no `config`: pass config="):
        from_nnx(module, family="llama")
    with pytest.raises(SinkjaxError, match=r"from_nnx takes an nnx\.Module, not 3"):
        from_nnx(3)
    del module.model.norm.scale
    with pytest.raises(SinkjaxError, match=r"model\.norm\.weight"):
        from_nnx(module, model.config, family="llama")
