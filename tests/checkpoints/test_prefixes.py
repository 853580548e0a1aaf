"""Tensor names with prefixes of wrappers, or without the head's: every family reads them."""

import jax
import numpy as np
import pytest

import sinkjax
from sinkjax.checkpoints.prefixes import canonical
from sinkjax.errors import SinkjaxError
from tests.checkpoints.files import LLAMA, random_weights, write_folder


@pytest.fixture
def weights():
    return random_weights(LLAMA)


FORMS = {
    "without the head": lambda name: name.removeprefix("model."),
    "compiled": lambda name: f"_orig_mod.{name}",
    "compiled layers": lambda name: name.replace(".self_attn.", "._orig_mod.self_attn."),
    "parallel": lambda name: f"module.{name}",
    "compiled in parallel": lambda name: f"module._orig_mod.{name}",
    "sharded": lambda name: name.replace("layers.0.", "layers.0._fsdp_wrapped_module._checkpoint_wrapped_module."),
    "peft": lambda name: f"base_model.model.{name}",
    "text part": lambda name: f"language_model.{name}",
    "text part of transformers 5": lambda name: name.replace("model.", "model.language_model."),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_model_is_the_same(tmp_path, weights, form):
    plain = sinkjax.load(write_folder(tmp_path / "plain", LLAMA, weights))
    moved = {FORMS[form](name): array for name, array in weights.items()}
    assert moved.keys() != weights.keys()
    found = sinkjax.load(write_folder(tmp_path / "moved", LLAMA, moved))
    jax.tree.map(np.testing.assert_array_equal, found.params, plain.params)
    assert found.source["sha256"] == plain.source["sha256"]


def test_two_names_of_one_tensor_are_refused(weights):
    weights["module.lm_head.weight"] = weights["lm_head.weight"]
    with pytest.raises(SinkjaxError, match=r"'lm_head\.weight' twice.*'module\.lm_head\.weight'"):
        sinkjax.from_arrays(LLAMA, weights)


def test_other_names_stay_and_are_refused_with_the_nearest(weights):
    assert canonical(["vision.a", "model.b"], {"b"}, "model.", {}, "x") == {"vision.a": "vision.a", "model.b": "b"}
    weights = {name.replace("self_attn", "attention"): array for name, array in weights.items()}
    with pytest.raises(SinkjaxError, match=r"'.*self_attn.k_proj.weight' and 7 more.*layers\.0\.attention\.k_proj"):
        sinkjax.from_arrays(LLAMA, weights)
