"""NVFP4 and MXFP4 beside their definitions, written with numpy and the types of ml_dtypes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from sinkjax.model.quantisation import BLOCK_FORMATS, Quantisation, e2m1

VALUES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def mxfp4(block: np.ndarray, tensor: np.ndarray) -> np.ndarray:
    scale = 2.0 ** (np.floor(np.log2(np.abs(block).max())) - 2)
    return np.clip(block / scale, -6, 6).astype(ml_dtypes.float4_e2m1fn).astype(np.float32) * scale


def nvfp4(block: np.ndarray, tensor: np.ndarray) -> np.ndarray:
    whole = np.float32(np.abs(tensor).max() / (6 * 448))
    scale = np.float32(np.float32(np.abs(block).max() / np.float32(6) / whole).astype(ml_dtypes.float8_e4m3fn)) * whole
    return np.clip(block / scale, -6, 6).astype(ml_dtypes.float4_e2m1fn).astype(np.float32) * scale


REFERENCE = {"mxfp4": (mxfp4, 32), "nvfp4": (nvfp4, 16)}


def by_blocks(x: np.ndarray, name: str, tensor: np.ndarray) -> np.ndarray:
    """Each block of the last axis by itself; the last may be shorter."""
    reference, size = REFERENCE[name]
    rows = x.reshape(-1, x.shape[-1])
    done = [[reference(row[at : at + size], tensor) for at in range(0, len(row), size)] for row in rows]
    return np.stack([np.concatenate(row) for row in done]).reshape(x.shape)


def test_elements_are_the_nearest_of_eight_values_and_ties_go_to_the_even_one() -> None:
    x = np.concatenate([np.linspace(-7, 7, 4001), (VALUES[1:] + VALUES[:-1]) / 2]).astype(np.float32)
    want = np.clip(x, -6, 6).astype(ml_dtypes.float4_e2m1fn).astype(np.float32)
    np.testing.assert_array_equal(e2m1(x), want)


@pytest.mark.parametrize("name", BLOCK_FORMATS)
@pytest.mark.parametrize("width", [64, 72])
def test_matrices_are_those_of_the_definition(rng, name: str, width: int) -> None:
    w = (rng.standard_normal((2, width, 5)) * np.exp(3 * rng.standard_normal((2, width, 1)))).astype(np.float32)
    found = np.asarray(Quantisation(weights=name).params({"layers": {"down": w}})["layers"]["down"])
    for layer in range(2):
        np.testing.assert_allclose(found[layer].T, by_blocks(w[layer].T, name, w[layer]), rtol=1e-6)
    assert np.abs(found - w).max() > 0


@pytest.mark.parametrize("name", BLOCK_FORMATS)
def test_vectors_that_are_kept_or_beyond_the_end_set_no_scale(rng, name: str) -> None:
    x = rng.standard_normal((2, 5, 2, 48)).astype(np.float32) * np.array([900, 1, 5, 1, 7000], np.float32)[:, None, None]
    lengths = np.array([5, 3])
    rows = (np.arange(5) > 0) & (np.arange(5) < lengths[:, None])
    found = np.asarray(Quantisation(activations=name).vectors(x, name, 2, rows))
    for prompt, length in enumerate(lengths):
        own = x[prompt, 1:length]
        np.testing.assert_allclose(found[prompt, 1:length], by_blocks(own, name, own), rtol=1e-6)
        np.testing.assert_array_equal(found[prompt, 0], x[prompt, 0])
