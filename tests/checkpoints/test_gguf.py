"""GGUF files: every type, the rotary row order, metadata as a config, and damage as one sentence."""

import contextlib
import dataclasses
import struct

import gguf
import jax
import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from hypothesis import given
from hypothesis import strategies as st

import sinkjax
from sinkjax.checkpoints.gguf import read_gguf_checkpoint
from sinkjax.checkpoints.gguf_file import read_gguf
from sinkjax.checkpoints.load import load_checkpoint
from sinkjax.checkpoints.names import slots
from sinkjax.checkpoints.stream import check_names
from sinkjax.errors import SinkjaxError
from sinkjax.model.rotary import LinearScaling, Llama3Scaling, YarnScaling
from tests.checkpoints.files import (
    GGUF_METADATA,
    LLAMA,
    gguf_weights,
    interleaved,
    random_weights,
    without,
    write_folder,
    write_gguf,
)


@pytest.fixture
def weights():
    return random_weights(LLAMA)


def stored(weights, *tied):
    return without(gguf_weights(weights, heads=4, kv_heads=2), *tied)


def refused(path, message, **options):
    with pytest.raises(SinkjaxError, match=message) as caught:
        sinkjax.load(path, **options)
    assert "\n" not in str(caught.value)


def test_a_gguf_is_the_folder_it_was_made_from(tmp_path, weights):
    """Fewer key-value heads than query heads: undoing the rotary order with the wrong count would show."""
    folder = sinkjax.load(write_folder(tmp_path / "hf", LLAMA, weights))
    model = sinkjax.load(write_gguf(tmp_path / "m.gguf", GGUF_METADATA, stored(weights)))
    jax.tree.map(np.testing.assert_array_equal, model.params, folder.params)
    eps = model.config.norm.eps
    assert eps == np.float32(1e-5)  # as the file holds it
    assert dataclasses.replace(model.config, norm=folder.config.norm) == folder.config
    assert model.source["kind"] == "gguf"
    assert model.tokenizer is None


@pytest.mark.parametrize("share", [0.6, 0.75, 0.9])
def test_a_file_in_pieces_is_the_whole_one(tmp_path, weights, share):
    """Cut within a tensor, and again a few bytes later; every byte of every tensor is where it was."""
    path = write_gguf(tmp_path / "m.gguf", GGUF_METADATA, stored(weights))
    data = path.read_bytes()
    cuts = [0, int(share * len(data)), int(share * len(data)) + 37, len(data)]
    pieces = [tmp_path / f"m.gguf.part{number}" for number in range(3)]
    for piece, start, stop in zip(pieces, cuts, cuts[1:], strict=False):
        piece.write_bytes(data[start:stop])
    whole, joined = (load_checkpoint(read_gguf_checkpoint(given), "float32") for given in (path, pieces))
    assert joined.source["sha256"] == whole.source["sha256"]
    jax.tree.map(np.testing.assert_array_equal, joined.params, whole.params)
    pieces[2].write_bytes(data[cuts[2] : -40])
    with pytest.raises(SinkjaxError, match=r"part0 is truncated"):
        read_gguf(*pieces)


def test_biases_of_llama_are_reordered_too_and_qwen2_is_not_reordered(tmp_path, weights):
    rng = np.random.default_rng(1)
    biases = {
        f"blk.{layer}.attn_{name}.bias": rng.standard_normal(width, np.float32)
        for layer in range(2)
        for name, width in (("q", 16), ("k", 8), ("v", 8))
    }
    qwen2 = write_gguf(tmp_path / "q.gguf", GGUF_METADATA, gguf_weights(weights, 0, 0) | biases, "qwen2")
    plain = sinkjax.load(qwen2).params["layers"]
    np.testing.assert_array_equal(plain["q_bias"][1], biases["blk.1.attn_q.bias"].reshape(4, 4))
    np.testing.assert_array_equal(plain["k"][0], weights["model.layers.0.self_attn.k_proj.weight"].T.reshape(16, 2, 4))
    counts = {"q": 4, "k": 2}
    moved = {name: interleaved(array, counts[name[11]]) if name[11] in counts else array for name, array in biases.items()}
    moved |= {f"blk.{layer}.attn_output.bias": rng.standard_normal(16, np.float32) for layer in range(2)}
    llama = sinkjax.load(write_gguf(tmp_path / "l.gguf", GGUF_METADATA, stored(weights) | moved)).params["layers"]
    for name in ("q_bias", "k_bias", "v_bias"):
        np.testing.assert_array_equal(llama[name], plain[name])


QUANTISED = [kind for kind in gguf.quants._type_traits if kind != GGMLQuantizationType.BF16]


@pytest.mark.parametrize("kind", [GGMLQuantizationType.F16, GGMLQuantizationType.BF16, *QUANTISED], ids=lambda kind: kind.name)
def test_every_type_that_the_gguf_package_reads(tmp_path, rng, kind):
    block, size = GGML_QUANT_SIZES[kind]
    raw = rng.integers(0, 256, (1030, 2 * size), dtype=np.uint8)  # more rows than are de-quantised at once
    path = write_gguf(tmp_path / "t.gguf", {}, {}, raw={"x": (raw, kind)})
    with np.errstate(all="ignore"):
        have, want = read_gguf(path)[1]["x"].array(), gguf.dequantize(raw, kind)
    assert have.shape == (1030, 2 * block)
    assert have.dtype == np.float32
    np.testing.assert_array_equal(have, want)


def test_a_file_cut_short_anywhere_is_one_sentence(tmp_path, weights):
    """In the header and in the data alike."""
    path = write_gguf(tmp_path / "m.gguf", GGUF_METADATA, stored(weights))
    whole = path.read_bytes()
    for keep in [0, 3, 6, *range(8, len(whole) - 64, 211), len(whole) - 64]:
        path.write_bytes(whole[:keep])
        with pytest.raises(SinkjaxError, match=r"truncated|not a GGUF file"):
            read_gguf(path)


@pytest.mark.parametrize("offset", [0, 16, 48])
def test_tensors_that_overlap_or_are_not_aligned_are_refused(tmp_path, offset):
    path = write_gguf(tmp_path / "m.gguf", {}, {"x": np.zeros(8, np.float32), "y": np.zeros(4, np.float32)})
    assert set(read_gguf(path)[1]) == {"x", "y"}
    before, _, after = path.read_bytes().rpartition(struct.pack("<Q", 32))
    path.write_bytes(before + struct.pack("<Q", offset) + after)
    with pytest.raises(SinkjaxError, match=f"[xy] begins at byte {offset},"):
        read_gguf(path)


VOCABULARY = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": ["<unk>", "▁", "a", "▁a"],
    "tokenizer.ggml.scores": [0.0, -1.0, -2.0, -3.0],
    "tokenizer.ggml.token_type": [2, 1, 1, 1],
    "tokenizer.ggml.bos_token_id": 1,
}


@given(position=st.integers(0, 2400), byte=st.integers(0, 255))
def test_a_changed_byte_in_the_header_is_one_sentence_or_another_model(tmp_path_factory, position, byte):
    path = tmp_path_factory.getbasetemp() / "changed.gguf"
    data = bytearray(write_gguf(path, GGUF_METADATA | VOCABULARY, stored(random_weights(LLAMA))).read_bytes())
    data[position] = byte
    path.write_bytes(data)
    with contextlib.suppress(SinkjaxError):
        checkpoint = read_gguf_checkpoint(path)
        check_names(checkpoint, slots(checkpoint.config, checkpoint.names))


def load_with(tmp_path, weights, metadata, **options):
    return sinkjax.load(write_gguf(tmp_path / "m.gguf", GGUF_METADATA | metadata, stored(weights)), **options)


def test_scalings_of_the_metadata(tmp_path, weights):
    yarn = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 32}
    config = load_with(tmp_path, weights, yarn).config
    assert config.position.scaling == YarnScaling(4.0, 32)
    assert config.context == 128
    linear = {"rope.scaling.type": "linear", "rope.scaling.factor": 2.0, "rope.scaling.finetuned": True}
    assert load_with(tmp_path, weights, linear).config.position.scaling == LinearScaling(2.0)
    assert load_with(tmp_path, weights, {"rope.scale_linear": 2.0}).config.position.scaling == LinearScaling(2.0)
    assert load_with(tmp_path, weights, {"rope.scaling.type": "none"}).config.position.scaling is None


def llama3_divisors(factor, head_dim, theta=10000.0, low=1.0, high=4.0, original=8192):
    """As llama.cpp's converter computes them, by wavelengths."""
    wavelengths = 2 * np.pi * theta ** (np.arange(0, head_dim, 2) / head_dim)
    smooth = (original / wavelengths - low) / (high - low)
    middle = 1 / ((1 - smooth) / factor + smooth)
    return np.where(wavelengths < original / high, 1.0, np.where(wavelengths > original / low, factor, middle)).astype(np.float32)


WIDE = LLAMA | {"head_dim": 32}


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_llama_3_frequencies_are_recognised(tmp_path, factor):
    metadata = GGUF_METADATA | {"rope.dimension_count": 32, "attention.key_length": 32, "attention.value_length": 32}
    weights = stored(random_weights(WIDE)) | {"rope_freqs.weight": llama3_divisors(factor, 32)}
    model = sinkjax.load(write_gguf(tmp_path / "m.gguf", metadata, weights))
    assert model.config.position.scaling == Llama3Scaling(factor, 1.0, 4.0, 8192)
    for other in (llama3_divisors(factor, 32, high=8.0), llama3_divisors(factor, 16)):
        path = write_gguf(tmp_path / "m.gguf", metadata, weights | {"rope_freqs.weight": other})
        refused(path, "rope_freqs.weight .*Llama 3")


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"rope.dimension_count": 2, "attention.key_length": 4}, "'rope.dimension_count' .* must be 4,"),
        ({"attention.value_length": 8}, "'attention.value_length' .* must be 4"),
        ({"expert_count": 8}, "does not state 'num_experts_per_tok'"),
        ({"expert_group_count": 8}, r"unknown config key 'expert_group_count'.*ignore_keys=\('expert_group_count',\)"),
        ({"rope.scaling.type": "su"}, "unknown rope.scaling.type .*'su'"),
        ({"attention.causal": False}, "'attention.causal' .* must be True"),
        ({"rope.scaling.attn_factor": 1.5}, "'rope.scaling.attn_factor'"),
        ({"attention.head_count_kv": 3}, "4 query heads cannot share 3"),
    ],
)
def test_metadata_that_is_not_understood_is_refused(tmp_path, weights, metadata, message):
    path = write_gguf(tmp_path / "m.gguf", GGUF_METADATA | metadata, stored(weights))
    refused(path, message)


def test_a_key_without_effect_is_accepted_deliberately(tmp_path, weights):
    assert load_with(tmp_path, weights, {"expert_count": 0}).config.layers == 2
    assert load_with(tmp_path, weights, {"pooling_type": 0}, ignore_keys=("pooling_type",)).config.layers == 2
    assert load_with(tmp_path, weights, {"pooling_type": 0}, ignore_keys=("llama.pooling_type",)).config.layers == 2


V01 = {"block_count": 32, "embedding_length": 4096, "feed_forward_length": 14336, "context_length": 32768, "vocab_size": 9}
V01 |= {"attention.head_count": 32, "attention.head_count_kv": 8, "attention.layer_norm_rms_epsilon": 1e-5}


@pytest.mark.parametrize(
    "metadata", [GGUF_METADATA | {"general.name": "mistralai_Ministral-3B"}, V01], ids=["by name", "by shape"]
)
def test_a_mistral_without_a_window_in_a_llama_file_is_refused_until_it_is_assumed(tmp_path, metadata):
    path = write_gguf(tmp_path / "m.gguf", metadata, {})
    refused(path, r"'sliding_window': .*Mistral.*assume=\{'sliding_window': \.\.\.\}")
    for window, family in ((4096, "mistral"), (None, "mistral")):
        read = read_gguf_checkpoint(path, assume={"sliding_window": window})
        assert (read.source["model_type"], read.source["assumed"]["sliding_window"]) == (family, window)
        assert read.config.windows == (window and (window,) * metadata["block_count"])


WINDOWS = [("llama", {}), ("phi3", {}), ("gemma2", {"attention.key_length": 4}), ("gemma3", {"attention.key_length": 4})]


@pytest.mark.parametrize(("architecture", "more"), WINDOWS)
def test_a_window_of_0_is_none(tmp_path, architecture, more):
    path = write_gguf(tmp_path / "m.gguf", GGUF_METADATA | more | {"attention.sliding_window": 0}, {}, architecture)
    assert read_gguf_checkpoint(path).config.windows is None


@pytest.mark.parametrize(
    ("architecture", "layers", "context", "window"),
    [
        ("phi3", 32, 4096, 2047),
        ("phi3", 40, 4096, 2047),
        ("phi3", 40, 16384, None),
        ("phi3", 2, 4096, None),
        ("gemma2", 2, 64, 4096),
        ("exaone4", 64, 64, 4096),
        ("exaone4", 2, 64, None),
    ],
)
def test_a_window_that_no_key_states_is_the_family_s(tmp_path, architecture, layers, context, window):
    metadata = GGUF_METADATA | {"block_count": layers, "context_length": context, "attention.key_length": 4}
    config = read_gguf_checkpoint(write_gguf(tmp_path / "m.gguf", metadata, {}, architecture)).config
    assert {*(config.windows or (None,))} - {None} == {window} - {None}


def test_defaults_of_llama_cpp_are_taken_and_said(tmp_path):
    metadata = without(GGUF_METADATA, "rope.freq_base", "attention.head_count_kv")
    read = read_gguf_checkpoint(write_gguf(tmp_path / "m.gguf", metadata, {}, "qwen2"))
    assert (read.config.position.theta, read.config.kv_heads) == (10000.0, 4)
    assert read.source["assumed"].items() >= {"rope_theta": 10000.0, "num_key_value_heads": 4}.items()
