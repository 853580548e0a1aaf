"""Every family against transformers, on drawn shapes: in float64 without its float32 casts; one shape in float32 as it is."""

from __future__ import annotations

import tempfile
from pathlib import Path

import jax
import numpy as np
import pytest
import torch
import transformers

import sinkjax
from sinkjax import Capture, Probe, Site
from sinkjax.checkpoints.family import families
from tests.model import families as small
from tests.model import reference

pytestmark = pytest.mark.apart
PROBE = Probe(attention=range(small.LAYERS), capture=(Capture(Site.RESID),), attention_received=True)
TOKENS = np.random.default_rng(1).integers(2, small.VOCABULARY, (len(small.LENGTHS), max(small.LENGTHS)))
CASES = [
    pytest.param(family, seed, id=f"{family}-{seed}", marks=[pytest.mark.long] if seed else [])
    for family in small.DRAWS
    for seed in small.seeds(family)
]


def ours(folder: Path, dtype: str) -> dict[str, np.ndarray]:
    """The whole batch, padded; loaded in float64, in which its files are."""
    with jax.enable_x64(True):
        model = sinkjax.load(folder, dtype="float64")
    with jax.enable_x64(dtype == "float64"):
        weights = jax.tree.map(lambda leaf: np.asarray(leaf, dtype), model.params)
        out = sinkjax.forward(weights, TOKENS, model.config, probe=PROBE, lengths=np.array(small.LENGTHS))
    names = ("resid", "attention", "attention_received")
    return {"logits": np.asarray(out.logits), **{name: np.asarray(out.record[name]) for name in names}}


def largest_differences(folder: Path, found: dict[str, np.ndarray], dtype: torch.dtype) -> dict[str, float]:
    """Over prompts, each alone and unpadded in transformers."""
    model, largest = small.read_model(folder, dtype), dict.fromkeys(found, 0.0)
    for b, length in enumerate(small.LENGTHS):
        want = {name: array[0] for name, array in small.observe(model, TOKENS[b : b + 1, :length]).items()}
        want["resid"], later = want["hidden"][1:], np.arange(length, 0, -1)
        want["attention_received"] = want["attention"].sum(axis=-2) / later  # it is causal: only queries key <= i count
        here = {
            "logits": found["logits"][b, :length],
            "resid": found["resid"][b, :, :length],
            "attention": found["attention"][b, :, :, :length, :length],
            "attention_received": found["attention_received"][b, :, :, :length],
        }
        for name, array in here.items():
            assert array.shape == want[name].shape
            largest[name] = max(largest[name], float(np.abs(array - want[name]).max()))
    return largest


def measured(family: str, seed: int, dtype: torch.dtype) -> dict[str, float]:
    """The largest differences in a dtype."""
    with tempfile.TemporaryDirectory() as name:
        small.write_model(family, seed, Path(name))
        return largest_differences(Path(name), ours(Path(name), str(dtype).removeprefix("torch.")), dtype)


@pytest.mark.parametrize(("family", "seed"), CASES)
def test_equal_to_transformers_without_its_float32_casts(family: str, seed: int) -> None:
    with reference.without_float32_casts():
        found = measured(family, seed, torch.float64)
    assert max(found.values()) < 1e-9, found


@pytest.mark.parametrize("family", small.DRAWS)
def test_equal_to_transformers_as_it_is_in_float32(family: str) -> None:
    """One shape of each: what float64 leaves open is where a family casts, and that is the same for all its shapes."""
    found = measured(family, 0, torch.float32)
    assert max(found.values()) < 2e-4, found


def test_every_family_is_drawn() -> None:
    assert small.DRAWS.keys() == families().keys()


@pytest.mark.parametrize(("heads", "T"), [(6, 11), (32, 400)])
def test_falcon_with_alibi_is_that_of_sdpa(heads: int, T: int, tmp_path: Path) -> None:
    """Falcon-RW, whose slopes and numbers are rounded to bfloat16. The eager attention of transformers adds them twice."""
    shape = {"vocab_size": small.VOCABULARY, "hidden_size": 4 * heads, "num_hidden_layers": 1, "num_attention_heads": heads}
    kind = {"multi_query": False, "parallel_attn": False, "alibi": True, "bias": True}
    small.write_random(transformers.FalconConfig(**shape, **kind), 0, tmp_path)
    tokens = np.random.default_rng(0).integers(0, small.VOCABULARY, (1, T))
    with jax.enable_x64(True):
        found = np.asarray(sinkjax.forward(sinkjax.load(tmp_path, "float64"), tokens).logits[0])
    with reference.without_float32_casts(), torch.no_grad():
        model = small.read_model(tmp_path, attention="sdpa")
        want = model(torch.as_tensor(tokens)).logits[0].numpy()
    np.testing.assert_allclose(found, want, rtol=0, atol=1e-9)
