"""`untrained:SOURCE`: the model's shape and tokenizer, weights as its pretraining starts, the same in every process."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

import jax
import numpy as np
import pytest

import sinkjax
from sinkjax.checkpoints import untrained
from sinkjax.checkpoints.model import Checkpoint
from sinkjax.errors import SinkjaxError
from sinkjax.model import params
from sinkjax.model.norms import DynamicTanh, LayerNorm, OffsetLayerNorm, OffsetRMSNorm, RMSNorm, SingleScaleRMSNorm
from tests.checkpoints.files import LLAMA, random_weights, write_folder
from tests.study.tiny import write_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("tiny"))


def test_shape_and_tokenizer_are_the_models_and_the_weights_are_not(folder):
    trained, random = sinkjax.load(folder), sinkjax.load(f"untrained:{folder}")
    assert random.config == trained.config
    params.check(random.params, random.config)
    assert random.tokenizer.encode("a text") == trained.tokenizer.encode("a text")
    assert random.source["bos"] == trained.source["bos"] == 0
    assert random.source["sha256"] != trained.source["sha256"]
    for name, leaf in random.params["layers"].items():
        if name.endswith("norm"):
            np.testing.assert_array_equal(leaf, 1)
        else:
            assert not np.allclose(leaf, trained.params["layers"][name], atol=0.01)


@pytest.mark.parametrize(("stated", "std"), [({}, 0.02), ({"initializer_range": 0.05}, 0.05)])
def test_matrices_have_the_deviation_that_the_config_states(tmp_path, stated, std):
    values = {**LLAMA, "hidden_size": 64, "intermediate_size": 96, "head_dim": 16, "vocab_size": 512, **stated}
    model = sinkjax.load(f"untrained:{write_folder(tmp_path, values, random_weights(values))}")
    for leaf in (model.params["embed"], model.params["unembed"], *(model.params["layers"][name] for name in ("q", "o", "down"))):
        assert float(leaf.std()) == pytest.approx(std, rel=0.05)
        assert abs(float(leaf.mean())) < std / 10
    assert model.source["assumed"].get("initializer_range") == (None if stated else std)


def test_no_weights_need_to_be_there(folder, tmp_path):
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    here = sinkjax.load(f"untrained:{tmp_path}")
    assert here.source["sha256"] == sinkjax.load(f"untrained:{folder}").source["sha256"]
    with pytest.raises(SinkjaxError, match=r"neither model\.safetensors nor"):
        sinkjax.load(tmp_path)


@pytest.mark.mesh
def test_the_draw_is_that_of_seed_and_name_on_a_mesh_and_in_a_narrow_type(folder):
    mesh = jax.make_mesh((2,), ("model",), devices=jax.devices()[:2])
    one, spread, narrow = (
        sinkjax.load(f"untrained:{folder}", **options) for options in ({}, {"mesh": mesh}, {"dtype": "bfloat16"})
    )
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(one.params), jax.device_get(spread.params))
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a.astype("bfloat16"), b), one.params, narrow.params)
    assert spread.params["layers"]["q"].addressable_shards[0].data.shape == (3, 16, 2, 4)  # two of four heads


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("norm", [RMSNorm, OffsetRMSNorm, SingleScaleRMSNorm, LayerNorm, OffsetLayerNorm, DynamicTanh])
def test_programs_draw_the_numbers_of_init_in_pieces(tiny_config, monkeypatch, dtype, norm):
    monkeypatch.setattr(untrained, "PIECE", 1000)
    config = dataclasses.replace(tiny_config, vocab_size=61, norm=norm(1e-5))  # a leaf that 1,000 does not divide
    checkpoint = Checkpoint("x", config, None, {}, (), None, {}, 0.1)
    want = jax.device_get(params.init(config, untrained.SEED, dtype, std=0.1))
    for partitionable in (True, False):  # a setting that changes other draws of JAX
        with jax.threefry_partitionable(partitionable):
            found, sha256 = untrained.draw_params(checkpoint, dtype)
        jax.tree.map(np.testing.assert_array_equal, jax.device_get(found), want)
    assert all(leaf.dtype == dtype for leaf in jax.tree.leaves(found))
    assert sha256 == hashlib.sha256(b"".join(leaf.tobytes() for leaf in jax.tree.leaves(want))).hexdigest()


def lowered(dtype: str):
    """The program that draws a leaf of 64 pieces with 2,048 numbers each."""
    places, kinds = [np.zeros((64, 2), np.uint32)], (((1024, 128), "normal"),)
    return untrained._program.lower([np.uint32(1)], places, np.float32(1), kinds=kinds, dtype=dtype).compile()


@pytest.mark.parametrize(("dtype", "most"), [("float32", 0.2), ("bfloat16", 1.3)])
def test_a_draw_holds_at_most_one_copy_of_its_leaf(dtype, most):
    """None in float32, where only pieces lie beside it."""
    memory = lowered(dtype).memory_analysis()
    assert memory.temp_size_in_bytes < most * memory.output_size_in_bytes
