"""Hugging Face folders: what is missing, damaged, superfluous or contradictory is named in one sentence."""

import json

import numpy as np
import pytest

import sinkjax
from sinkjax.errors import SinkjaxError
from tests.checkpoints.files import LLAMA, random_weights, without, write_folder

NORM = "model.layers.1.input_layernorm.weight"


def refused(folder, message, **options):
    with pytest.raises(SinkjaxError, match=message) as caught:
        sinkjax.load(folder, **options)
    assert "\n" not in str(caught.value)


@pytest.fixture
def weights():
    return random_weights(LLAMA)


def test_a_missing_shard_and_a_shard_without_its_tensor(tmp_path, weights):
    folder = write_folder(tmp_path, LLAMA, weights, shards=2)
    shard = folder / "model-00001-of-00002.safetensors"
    saved = shard.read_bytes()
    shard.unlink()
    refused(folder, "model-00001-of-00002.safetensors .*missing")
    shard.write_bytes(saved)
    index = folder / "model.safetensors.index.json"
    index.write_text(index.read_text().replace('"lm_head.weight"', '"lm_head.bias"'))
    refused(folder, "lm_head.bias .*model-0000.-of-00002.safetensors")


@pytest.mark.parametrize("keep", [0, 4, 8, 100, -200, -1])
def test_a_file_cut_short_at_any_place(tmp_path, weights, keep):
    folder = write_folder(tmp_path, LLAMA, weights)
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    refused(folder, "model.safetensors is truncated")


OTHER_FILES = {
    "git-lfs pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
    "NumPy": b"\x93NUMPY\x01\x00v\x00{'descr': '<f4'}" + bytes(40),
    "zip archive": b"PK\x03\x04\x00\x00\x08\x08\x00\x00archive/data.pkl" + bytes(40),
    "pickle": b"\x80\x02}q\x00X\x06\x00\x00\x00weight",
    "GGUF": b"GGUF\x03\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00",
    "HTML": b"<!DOCTYPE html><html><body>Access denied</body></html>",
}


@pytest.mark.parametrize("kind", OTHER_FILES)
def test_a_file_of_another_kind_is_named(tmp_path, weights, kind):
    (write_folder(tmp_path / "m", LLAMA, weights) / "model.safetensors").write_bytes(OTHER_FILES[kind])
    refused(tmp_path / "m", rf"model\.safetensors .*safetensors file but .*{kind}")


def test_an_unknown_weight_needs_a_deliberate_word(tmp_path, weights):
    odd = "model.layers.1.self_attn.q_prod.weight"
    folder = write_folder(tmp_path, LLAMA, weights | {odd: np.zeros(3, np.float32)})
    refused(folder, rf"'{odd}' .*'model.layers.{{}}.self_attn.q_proj.weight'.*ignore_keys=\('{odd}',\)")
    assert sinkjax.load(folder, ignore_keys=("model.layers.*.q_prod.weight",)).config.layers == 2


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_weight_that_is_not_finite(tmp_path, weights, bad):
    weights[NORM][3] = bad
    refused(write_folder(tmp_path, LLAMA, weights), f"{NORM} .*NaN or infinity")


def test_tied_copies_are_equal_or_refused(tmp_path, weights):
    tied = LLAMA | {"tie_word_embeddings": True}
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"].copy()
    assert "unembed" not in sinkjax.load(write_folder(tmp_path, tied, weights)).params
    weights["lm_head.weight"][-1, -1] += 1
    folder = write_folder(tmp_path, tied, weights)
    refused(folder, r"lm_head.weight .*model.embed_tokens.weight, .*differ.*to false.*ignore_keys=\('lm_head.weight',\)")
    assert "unembed" not in sinkjax.load(folder, ignore_keys=("lm_head.weight",)).params
    untied = sinkjax.load(write_folder(tmp_path, LLAMA, weights))
    np.testing.assert_array_equal(untied.params["unembed"].T, weights["lm_head.weight"])


STALE = "model.layers.0.self_attn.q_proj.weight"


def two_shards(folder, weights, stale=STALE):
    """A folder in two shards, each of which has `stale`: right where the index puts it, wrong in the other. Returns the index."""
    from safetensors.numpy import save_file

    write_folder(folder, LLAMA, weights, shards=2)
    index = folder / "model.safetensors.index.json"
    names = json.loads(index.read_text())["weight_map"]
    for shard in set(names.values()):
        held = {name: array for name, array in weights.items() if names[name] == shard}
        save_file({stale: weights[stale] + 1, **held}, folder / shard)
    return index, names


@pytest.mark.parametrize("stale", [STALE, "lm_head.weight", "model.embed_tokens.weight"])
def test_the_index_decides_between_two_shards_that_hold_a_tensor(tmp_path, weights, stale):
    want = sinkjax.load(write_folder(tmp_path / "one", LLAMA, weights)).source["sha256"]
    two_shards(tmp_path / "two", weights, stale)
    assert sinkjax.load(tmp_path / "two").source["sha256"] == want


def test_a_tensor_that_the_index_does_not_list_is_read_if_one_shard_has_it(tmp_path, weights):
    index, names = two_shards(tmp_path, weights)
    index.write_text(json.dumps({"weight_map": without(names, STALE)}))
    refused(tmp_path, rf"{STALE} stands in model-0000.-of-00002.safetensors and in another shard, and .*index.json does not say")
    want = sinkjax.load(write_folder(tmp_path / "one", LLAMA, weights)).source["sha256"]
    folder = write_folder(tmp_path / "two", LLAMA, weights, shards=2)
    (folder / index.name).write_text(json.dumps({"weight_map": without(names, STALE)}))
    assert sinkjax.load(folder).source["sha256"] == want


def test_a_folder_without_weights(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    refused(tmp_path, "has neither model.safetensors nor model.safetensors.index.json")
    (tmp_path / "pytorch_model.bin").touch()
    refused(tmp_path, r"as pickles only, .*from_pretrained\('.*'\); model.save_pretrained\('.*-safetensors'\)")
