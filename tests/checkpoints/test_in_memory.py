"""Models that are in memory: those of transformers compute the same here; arrays go both ways bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers

import sinkjax
from sinkjax.checkpoints.family import families
from sinkjax.errors import SinkjaxError
from tests.checkpoints import files
from tests.model import families as small
from tests.model import reference
from tests.study.tiny import write_model

TOKENS = np.random.default_rng(1).integers(2, small.VOCABULARY, (1, 11))
# Tensors as they are; parts of one tensor, inputs first; norms around; experts in one tensor in memory, or in files too.
OF_EACH_KIND = ("llama", "gpt2", "gemma2", "mixtral", "gpt_oss")
EACH = [pytest.param(name, marks=[] if name in OF_EACH_KIND else [pytest.mark.long]) for name in sorted(families())]
KEY = "model.layers.1.self_attn.k_proj.weight"


def live(family: str, seed: int = 1) -> Any:
    return small.random_model(small.DRAWS[family](small.Turn(seed)), seed)


def logits(model: sinkjax.Model) -> np.ndarray:
    return np.asarray(sinkjax.forward(model.params, TOKENS, model.config).logits)


@torch.no_grad()
def theirs(model: Any) -> np.ndarray:
    return small.as_numpy(model(torch.as_tensor(TOKENS), use_cache=False).logits)


def same(first: sinkjax.Model, second: sinkjax.Model) -> None:
    """The same numbers, bit for bit, in the same tree of the same config."""
    assert first.config == second.config
    jax.tree.map(np.testing.assert_array_equal, first.params, second.params)


def small_llama() -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    return dict(files.LLAMA), files.random_weights(files.LLAMA)


@pytest.mark.parametrize("family", OF_EACH_KIND)
def test_a_live_model_computes_the_same(family: str) -> None:
    with jax.enable_x64(True), reference.without_float32_casts():
        model = live(family)
        ours = sinkjax.from_transformers(model)
        assert jax.tree.leaves(ours.params)[0].dtype == jnp.float64
        np.testing.assert_allclose(logits(ours), theirs(model), rtol=0, atol=1e-9)
    single = sinkjax.from_transformers(model.float())
    np.testing.assert_allclose(logits(single), theirs(model), rtol=0, atol=2e-4)


@pytest.mark.parametrize("family", EACH)
def test_a_live_model_is_the_one_that_it_saves_and_its_arrays_are_it_again(family: str, tmp_path: Path) -> None:
    model = live(family).float()
    model.save_pretrained(tmp_path)
    here, loaded = sinkjax.from_transformers(model), sinkjax.load(tmp_path)
    same(here, loaded)
    assert {name: here.source[name] for name in ("sha256", "model_type", "assumed", "stored", "dtype")} == {
        name: loaded.source[name] for name in ("sha256", "model_type", "assumed", "stored", "dtype")
    }
    assert here.source["kind"] == "transformers"
    arrays = sinkjax.to_arrays(here)
    same(sinkjax.from_arrays(model.config, arrays), here)
    same(sinkjax.from_arrays(here.config, arrays, family=family), here)
    assert sinkjax.from_arrays(tmp_path, arrays).source["sha256"] == here.source["sha256"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_tensor_that_is_a_leaf_is_shared_in_its_dtype_alone(dtype: torch.dtype) -> None:
    model = live("llama").to(dtype)
    embed = model.get_input_embeddings().weight
    ours = sinkjax.from_transformers(model)
    assert str(ours.params["embed"].dtype) == ours.source["dtype"] == str(dtype).removeprefix("torch.")
    assert ours.params["embed"].unsafe_buffer_pointer() == embed.data_ptr()
    np.testing.assert_array_equal(np.asarray(ours.params["embed"], np.float32), embed.detach().float().numpy())
    other = sinkjax.from_transformers(model, dtype="float16" if dtype != torch.float16 else "float32")
    before = np.array(other.params["embed"])
    with torch.no_grad():
        embed.zero_()
    np.testing.assert_array_equal(other.params["embed"], before)


def test_the_tokenizer_comes_along_and_is_left_alone(tmp_path: Path) -> None:
    write_model(tmp_path)
    loaded = sinkjax.load(tmp_path)
    fast = transformers.AutoTokenizer.from_pretrained(tmp_path)
    fast.backend_tokenizer.enable_truncation(3)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    ours = sinkjax.from_transformers(model, fast)
    for mine, want in zip(sinkjax.encode(ours, ["the key"]), sinkjax.encode(loaded, ["the key"]), strict=True):
        np.testing.assert_array_equal(mine, want)
    assert (ours.source["bos"], ours.source["eos"]) == (loaded.source["bos"], loaded.source["eos"])
    assert fast.backend_tokenizer.truncation["max_length"] == 3
    assert sinkjax.from_transformers(model, loaded.tokenizer).tokenizer is loaded.tokenizer


def test_arrays_of_every_kind_make_the_same_model(tmp_path: Path) -> None:
    values, arrays = small_llama()
    model = sinkjax.load(files.write_folder(tmp_path, values, arrays))
    same(sinkjax.from_arrays(values, arrays), model)
    same(sinkjax.from_arrays(files.without(values, "model_type"), arrays, family="llama"), model)
    same(sinkjax.from_arrays(tmp_path / "config.json", arrays), model)
    same(sinkjax.from_arrays(values, {name: jnp.asarray(array) for name, array in arrays.items()}), model)
    same(sinkjax.from_arrays(values, {name: torch.tensor(array) for name, array in arrays.items()}), model)
    arrays["model.embed_tokens.weight"][:] = 0  # numpy's are copied
    assert np.asarray(model.params["embed"]).any()


def test_leaves_go_under_their_own_names_where_no_family_has_them(tiny_config, tiny_params) -> None:
    """And a model of one family can be asked for by the names of another that has all of its leaves."""
    model = sinkjax.from_arrays(tiny_config, {"embed": tiny_params["embed"]} | {
        f"layers.{name}": leaf for name, leaf in tiny_params["layers"].items()
    } | {"final_norm": tiny_params["final_norm"], "unembed": tiny_params["unembed"]})  # fmt: skip
    jax.tree.map(np.testing.assert_array_equal, model.params, tiny_params)
    same(sinkjax.from_arrays(model.config, sinkjax.to_arrays(model)), model)
    named = sinkjax.to_arrays(model, family="llama")
    assert named["model.layers.2.mlp.down_proj.weight"].shape == (32, 48)
    same(sinkjax.from_arrays(model.config, named, family="mistral"), model)
    with pytest.raises(SinkjaxError, match=r"layers\.gate, .*gpt2"):
        sinkjax.to_arrays(model, family="gpt2")


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        ({KEY: np.zeros((16, 16))}, {}, rf"{KEY} .*\(16, 16\).*\(8, 16\) \(layers.k\)"),
        ({KEY: torch.zeros(8, 16, device="meta")}, {}, f"{KEY} .*meta device"),
        ({KEY: np.full((8, 16), np.nan, np.float32)}, {}, f"{KEY} .*NaN"),
        ({}, {"family": "lama"}, "family 'lama' .*'llama'"),
        ({}, {"family": "gpt2"}, "family='gpt2' .*'llama'"),
        ({}, {"arrays": {}}, "'lm_head.weight' and 20 more"),
        ({}, {"arrays": [1]}, "arrays must be a mapping"),
        ({}, {"tokenizer": "gpt2"}, "tokenizer .*'gpt2'"),
    ],
    ids=str,
)  # fmt: skip
def test_arrays_that_do_not_fit_are_refused(change, options, words) -> None:
    values, arrays = small_llama()
    with pytest.raises(SinkjaxError, match=words):
        sinkjax.from_arrays(**{"config": values, "arrays": arrays | change, **options})
