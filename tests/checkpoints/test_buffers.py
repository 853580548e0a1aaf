"""Causal masks and other constants among the weights: recognised in every stored type, checked, and left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import sinkjax
from sinkjax.errors import SinkjaxError
from tests.model import families as small

MODULES = {"gpt_neox": "gpt_neox.layers.{}.attention.", "gpt2": "transformer.h.{}.attn."}
TYPES = (torch.uint8, torch.bool, torch.int8, torch.int64, torch.float16, torch.bfloat16, torch.float32)


def buffers(family: str, dtype: torch.dtype, fill: torch.Tensor | None = None, n: int = small.CONTEXT) -> dict[str, Any]:
    """The buffers of Pythia 1B and of old GPT-2 files: masks [1, 1, n, n], a number for masked scores, rotary frequencies."""
    found = {}
    for layer in range(small.LAYERS):
        module = MODULES[family].format(layer)
        found[f"{module}bias"] = torch.ones(n, n).tril().reshape(1, 1, n, n).to(dtype)
        found[f"{module}masked_bias"] = torch.tensor(-1e9) if fill is None else fill.clone()
        if family == "gpt_neox":
            found[f"{module}rotary_emb.inv_freq"] = torch.ones(2).half()
    return found


@pytest.fixture(scope="module", params=MODULES)
def plain(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A family, and a folder of it without buffers."""
    folder = tmp_path_factory.mktemp(request.param)
    small.write_model(request.param, 1, folder)
    return request.param, folder


def beside(folder: Path, to: Path, more: dict[str, torch.Tensor], prefix: str = "") -> Path:
    """A copy of a folder with more tensors in its file, its names without `prefix`."""
    weights = load_file(folder / "model.safetensors") | more
    save_file({name.removeprefix(prefix): tensor for name, tensor in weights.items()}, to / "model.safetensors")
    (to / "config.json").write_text((folder / "config.json").read_text())
    return to


def same(first: sinkjax.Model, second: sinkjax.Model) -> None:
    assert first.source["sha256"] == second.source["sha256"]
    assert first.source["stored"] == second.source["stored"]
    jax.tree.map(np.testing.assert_array_equal, first.params, second.params)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_a_mask_of_any_stored_type_changes_nothing(plain: tuple[str, Path], tmp_path: Path, dtype: torch.dtype) -> None:
    family, folder = plain
    prefix = MODULES[family].split(".")[0] + "." if dtype == torch.bool else ""  # a file without the head
    fill = torch.tensor([-1e4]).bfloat16() if dtype == torch.bfloat16 else torch.tensor(-np.inf).half()
    with jax.enable_x64(True):
        model = sinkjax.load(beside(folder, tmp_path, buffers(family, dtype, fill), prefix), dtype="float64")
        same(model, sinkjax.load(folder, dtype="float64"))


def test_masks_of_arrays_in_memory_change_nothing(plain: tuple[str, Path]) -> None:
    family, folder = plain
    weights, values = load_file(folder / "model.safetensors"), json.loads((folder / "config.json").read_text())
    with jax.enable_x64(True):
        model = sinkjax.from_arrays(values, weights)
        for dtype in (torch.bool, torch.uint8):
            masks = buffers(family, dtype, n=256)  # more bytes than weights
            same(sinkjax.from_arrays(values, weights | masks), model)
            arrays = {name: tensor.numpy() for name, tensor in (weights | masks).items()}
            same(sinkjax.from_arrays(values, arrays), model)


def test_a_mask_that_is_not_causal_is_refused(plain: tuple[str, Path], tmp_path: Path) -> None:
    family, folder = plain
    module = MODULES[family].format(1)
    with jax.enable_x64(True):
        for name, tensor in {
            f"{module}bias": torch.ones(1, 1, 4, 4, dtype=torch.uint8),  # both ways
            f"{module}masked_bias": torch.tensor(0.0),
        }.items():
            for other in (tensor, tensor.new_zeros(3)):
                changed = beside(folder, tmp_path, buffers(family, torch.uint8) | {name: other})
                with pytest.raises(SinkjaxError, match=rf"{name} of .* must be (a causal mask|one number)"):
                    sinkjax.load(changed, dtype="float64")
        window = torch.ones(1, 1, 8, 8).tril().triu(-3).bool()
        changed = beside(folder, tmp_path, buffers(family, torch.bool) | {f"{module}bias": window})
        with pytest.raises(SinkjaxError, match="must be a causal mask"):
            sinkjax.load(changed, dtype="float64")
        assert sinkjax.load(changed, dtype="float64", ignore_keys=(f"{module}bias",)).config.layers == small.LAYERS


def test_a_constant_of_an_activation_is_checked(tmp_path: Path) -> None:
    small.write_model("apertus", 1, tmp_path)
    weights, name = load_file(tmp_path / "model.safetensors"), "model.layers.0.mlp.act_fn.beta"
    assert name in weights
    save_file(weights | {name: weights[name] + 0.25}, tmp_path / "model.safetensors")
    with pytest.raises(SinkjaxError, match=r"act_fn.beta of .* must be 0\.5"), jax.enable_x64(True):
        sinkjax.load(tmp_path, dtype="float64")


def test_integers_are_neither_weights_nor_a_closed_door(plain: tuple[str, Path], tmp_path: Path) -> None:
    _, folder = plain
    weights = load_file(folder / "model.safetensors")
    odd = next(name for name in weights if name.endswith(("layers.0.input_layernorm.weight", "h.0.ln_1.weight")))
    with jax.enable_x64(True):
        with pytest.raises(SinkjaxError, match=rf"{odd} of .* holds int8, not floating-point"):
            sinkjax.load(beside(folder, tmp_path, {odd: weights[odd].to(torch.int8)}), dtype="float64")
        changed = beside(folder, tmp_path, {"position_ids": torch.arange(4)})
        with pytest.raises(SinkjaxError, match=r"'position_ids'.*ignore_keys"):
            sinkjax.load(changed, dtype="float64")
        assert sinkjax.load(changed, dtype="float64", ignore_keys=("position_ids",)).config.layers == small.LAYERS
