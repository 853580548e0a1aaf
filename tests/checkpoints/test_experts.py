"""Mixtures of experts as files hold them: one tensor for each expert, or one for all of a layer, as transformers 5 saves them."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

import sinkjax
from sinkjax.errors import SinkjaxError
from tests.model import families as small

TOKENS = np.random.default_rng(3).integers(0, small.VOCABULARY, (1, 11))


def saved(family: str, folder: Path, fused: bool) -> Path:
    """A folder of a random mixture, as transformers saves it in either layout."""
    model = small.random_model(small.DRAWS[family](small.Turn(1)), seed=1)
    model.save_pretrained(folder, save_original_format=not fused)
    assert fused == any(name.endswith("experts.gate_up_proj") for name in load_file(folder / "model.safetensors"))
    return folder


@pytest.mark.parametrize("family", ["mixtral", "olmoe", "qwen3_moe"])
def test_fused_experts_are_the_numbers_of_single_ones_and_of_transformers(family: str, tmp_path: Path) -> None:
    with jax.enable_x64(True):
        one_by_one, fused = (sinkjax.load(saved(family, tmp_path / str(how), how), dtype="float64") for how in (False, True))
        logits = np.asarray(sinkjax.forward(fused, TOKENS).logits)
    jax.tree.map(np.testing.assert_array_equal, fused.params, one_by_one.params)
    with torch.no_grad():
        want = small.read_model(tmp_path / "True")(torch.tensor(TOKENS)).logits.numpy()
    np.testing.assert_allclose(logits, want, atol=1e-5)


def test_fused_experts_below_another_prefix_or_of_another_size(tmp_path: Path) -> None:
    folder = saved("mixtral", tmp_path / "whole", fused=True)
    stored = load_file(folder / "model.safetensors")
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "config.json").write_text(json.dumps(small.stated(folder)))
    save_file({name.removeprefix("model."): array for name, array in stored.items()}, bare / "model.safetensors")
    with jax.enable_x64(True):
        whole, same = (sinkjax.load(each, dtype="float64") for each in (folder, bare))
        jax.tree.map(np.testing.assert_array_equal, whole.params, same.params)
        name = "model.layers.1.mlp.experts.gate_up_proj"
        save_file(stored | {name: np.ascontiguousarray(stored[name].swapaxes(1, 2))}, bare / "model.safetensors")
        with pytest.raises(SinkjaxError, match=r"layers\.1\.mlp\.experts\.gate_up_proj .*has shape"):
            sinkjax.load(bare, dtype="float64")
        save_file({key: array for key, array in stored.items() if key != name}, bare / "model.safetensors")
        with pytest.raises(SinkjaxError, match=r"no tensor 'model\.layers\.1\.mlp\.experts\.gate_up_proj'"):
            sinkjax.load(bare, dtype="float64")
