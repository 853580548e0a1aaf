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
from sinkjax.checkpoints.load import open_checkpoint
from sinkjax.errors import SinkjaxError
from tests.checkpoints.files import HUB
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


def quantised(rng: np.random.Generator, experts: int, outputs: int, inputs: int) -> tuple[np.ndarray, np.ndarray]:
    """Random blocks and scales of a matrix of each expert."""
    blocks = rng.integers(0, 256, (experts, outputs, inputs // 32, 16), np.uint8)
    return blocks, rng.integers(120, 128, blocks.shape[:-1], np.uint8)


def by_the_specification(blocks: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """The numbers in float64, bit by bit as the OCP's MX specification 1.0 defines E2M1 and E8M0."""
    codes = np.stack([blocks & 15, blocks >> 4], axis=-1).reshape(*blocks.shape[:-1], 32).astype(int)
    sign, exponent, mantissa = codes >> 3, codes >> 1 & 3, codes & 1
    magnitude = np.where(exponent == 0, mantissa * 0.5, 2.0 ** (exponent - 1) * (1 + mantissa / 2))
    numbers = (-1.0) ** sign * magnitude * 2.0 ** (scales[..., None].astype(float) - 127)
    return numbers.reshape(*blocks.shape[:2], -1)


@pytest.fixture
def packed(tmp_path: Path) -> tuple[Path, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """A folder as OpenAI published gpt-oss; its tensors, and the experts' matrices by the specification, [experts, in, out]."""
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "truncate": False, "rope_theta": 500.0}
    values = small.common(small.Turn(0), rope_parameters=yarn, head_dim=8, num_local_experts=3, num_experts_per_tok=2)
    values |= {"hidden_size": 64, "intermediate_size": 32, "sliding_window": small.WINDOW}
    small.write_random(small.hf.GptOssConfig(**values), 0, tmp_path)
    stored, rng, want = load_file(tmp_path / "model.safetensors"), np.random.default_rng(5), {}
    for name in [name for name in stored if name.endswith(("gate_up_proj", "down_proj"))]:
        experts, inputs, outputs = stored.pop(name).shape
        blocks, scales = quantised(rng, experts, outputs, inputs)
        stored |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
        want[name] = by_the_specification(blocks, scales).swapaxes(1, 2)
    save_file(stored, tmp_path / "model.safetensors", metadata={"format": "pt"})
    stated = small.stated(tmp_path) | {"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}}
    (tmp_path / "config.json").write_text(json.dumps(stated))
    return tmp_path, stored, want


def test_mxfp4_is_the_numbers_of_its_specification_and_the_model_of_transformers(packed) -> None:
    folder, _, want = packed
    with jax.enable_x64(True):
        model = sinkjax.load(folder, dtype="float64")
        found = sinkjax.to_arrays(model)
        logits = np.asarray(sinkjax.forward(model, TOKENS).logits)
    for name, array in want.items():
        np.testing.assert_allclose(found[name], array, rtol=2e-15, atol=0)
    plain = small.hf.Mxfp4Config(dequantize=True)
    live = small.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, quantization_config=plain, **small.EAGER)
    with torch.no_grad():
        theirs = live.eval().double()(torch.tensor(TOKENS)).logits.numpy()
    np.testing.assert_allclose(logits, theirs, atol=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda blocks, scales: {"blocks": blocks}, "but no '.*down_proj_scales'"),
        (lambda blocks, scales: {"scales": scales}, "but no '.*down_proj_blocks'"),
        (
            lambda blocks, scales: {"blocks": blocks, "scales": scales[:, :-1].copy()},
            r"uint8 \(3, 64, 1, 16\) and uint8 \(3, 63, 1\)",
        ),
        (lambda blocks, scales: {"blocks": blocks.astype(np.float32), "scales": scales}, r"float32 \(3, 64, 1, 16\)"),
        (lambda blocks, scales: {"blocks": blocks[:, :-1].copy(), "scales": scales[:, :-1].copy()}, r"shape \(63, 32\)"),
        (
            lambda blocks, scales: {"blocks": blocks[:-1].copy(), "scales": scales[:-1].copy()},
            r"no tensor .*experts\.2\.down_proj",
        ),
        (lambda blocks, scales: {"blocks": blocks, "scales": np.full_like(scales, 255)}, r"experts\.0\.down_proj .*NaN"),
    ],
)
def test_damaged_mxfp4_is_refused_by_name(packed, change, message: str) -> None:
    folder, stored, _ = packed
    name = "model.layers.1.mlp.experts.down_proj"
    pair = change(stored.pop(f"{name}_blocks"), stored.pop(f"{name}_scales"))
    save_file(stored | {f"{name}_{end}": array for end, array in pair.items()}, folder / "model.safetensors")
    with pytest.raises(SinkjaxError, match=message) as caught:
        sinkjax.load(folder)
    assert "\n" not in str(caught.value)


def test_only_a_config_that_states_mxfp4_has_tensors_unpacked(packed) -> None:
    """Else a tensor whose name happens to end so is a tensor like any other, and may be left out."""
    folder, stored, _ = packed
    save_file(stored | {"notes_scales": np.zeros(3)}, folder / "model.safetensors")
    with pytest.raises(SinkjaxError, match="has 'notes_scales', but no 'notes_blocks'"):
        sinkjax.load(folder)
    with pytest.raises(SinkjaxError, match=r"no tensor .*experts\.(gate_up|down)_proj"):
        sinkjax.load(folder, ignore_keys=("quantization_config",))
    plain = saved("mixtral", folder / "plain", fused=False)
    weights = load_file(plain / "model.safetensors")
    save_file(weights | {"notes_scales": np.zeros(3)}, plain / "model.safetensors")
    assert sinkjax.load(plain, ignore_keys=("notes_scales",)).config.experts is not None


def test_the_folder_of_gpt_oss_20b_is_planned_without_its_weights(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(HUB["openai/gpt-oss-20b"]))
    read = open_checkpoint(str(tmp_path), weights=False)
    assert (read.config.layers, read.config.experts.count, read.config.width) == (24, 32, 2880)
    assert read.config == open_checkpoint("gpt-oss-20b", weights=False).config
