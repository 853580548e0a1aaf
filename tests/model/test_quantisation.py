"""Rounding to few bits: its steps, what shares a scale, and rotations that change nothing by themselves."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest

from sinkjax.model.quantisation import Quantisation, factors, rotate, rounded

LENGTHS = np.array([5, 3])
ROWS = np.arange(5)
AXES = {"tensor": (0, 1, 2), "channel": (0,), "token": (2,)}  # of one prompt's [T, G, D]


def steps_of(x: np.ndarray, bits: int, axes: tuple[int, ...]) -> np.ndarray:
    """The nearest of the evenly spaced numbers, by looking at all of them."""
    grid = np.arange(-(2 ** (bits - 1)) + 1, 2 ** (bits - 1))
    scale = np.abs(x).max(axis=axes, keepdims=True) / grid.max()
    nearest = np.abs(x[..., None] / scale[..., None] - grid).argmin(-1)
    return grid[nearest] * scale


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("axes", [(0, 1), (0,), (1,)])
def test_numbers_are_rounded_to_the_nearest_of_even_steps(rng, bits: int, axes: tuple[int, ...]) -> None:
    x = rng.standard_normal((6, 7)).astype(np.float32)
    assert np.allclose(rounded(x, bits, axes), steps_of(x, bits, axes), atol=1e-6)


@pytest.mark.parametrize("scale", AXES)
@pytest.mark.parametrize("keep", [(), (0, 2)])
def test_what_shares_a_scale(rng, scale: str, keep: tuple[int, ...]) -> None:
    """Each prompt by itself; what lies beyond its end, or is kept, sets no scale."""
    x = rng.standard_normal((2, 5, 2, 4)).astype(np.float32) * np.array([9, 1, 5, 1, 1], np.float32)[:, None, None]
    found = np.asarray(Quantisation(kv=3, scale=scale).vectors(x, 3, 2, (ROWS < LENGTHS[:, None]) & ~np.isin(ROWS, keep)))
    for prompt, length in enumerate(LENGTHS):
        chosen = [row for row in range(length) if row not in keep]
        assert np.allclose(found[prompt, chosen], steps_of(x[prompt, chosen], 3, AXES[scale]), atol=1e-6)
        assert (found[prompt, [*keep]] == x[prompt, [*keep]]).all()


@pytest.mark.parametrize("scale", ["tensor", "token"])
@pytest.mark.parametrize(("name", "shape", "inputs"), [("q", (3, 6, 2, 5), 1), ("o", (3, 2, 5, 6), 2), ("down", (3, 2, 8, 6), 1)])
def test_matrices_have_a_scale_each_or_one_for_each_output(rng, scale: str, name: str, shape: tuple, inputs: int) -> None:
    w = rng.standard_normal(shape).astype(np.float32)
    layers = {name: w, "attn_norm": w[0]}
    found = Quantisation(weights=4, scale=scale).params({"layers": layers, "embed": w})
    assert found["embed"] is w
    assert found["layers"]["attn_norm"] is layers["attn_norm"]
    stack = 2 if name == "down" else 1  # three layers of two experts
    done = np.asarray(found["layers"][name])
    for place in np.ndindex(shape[:stack]):
        axes = tuple(range(w[place].ndim)) if scale == "tensor" else tuple(range(inputs))
        assert np.allclose(done[place], steps_of(w[place], 4, axes), atol=1e-6)


@pytest.mark.parametrize("n", [1, 2, 8, 12, 20, 28, 36, 64, 128, 576, 640, 960, 1536, 2048])
def test_a_rotation_is_orthogonal_with_entries_of_one_size(n: int) -> None:
    whole = functools.reduce(np.kron, factors(n))
    assert np.allclose(whole @ whole.T, np.eye(n))
    assert np.allclose(np.abs(whole), n**-0.5)


@pytest.mark.parametrize("n", [8, 36, 26, 256])
def test_rotating_is_a_product_with_that_matrix_and_back_undoes_it(rng, n: int) -> None:
    with jax.enable_x64(True):
        x = rng.standard_normal((2, 3, n))
        matrix = np.asarray(rotate(np.eye(n)))
        assert np.allclose(np.abs(matrix), np.abs(functools.reduce(np.kron, factors(n))))
        assert np.allclose(rotate(x), x @ matrix, atol=1e-12)
        assert np.allclose(rotate(rotate(x), back=True), x, atol=1e-12)


def test_a_rotation_spreads_what_is_in_one_dim(rng) -> None:
    """So the error of the other dims, with one scale for all, falls."""
    x = rng.standard_normal((1, 5, 64)).astype(np.float32)
    x[..., 3] += 500
    errors = [
        np.linalg.norm(Quantisation(activations=8, rotate=on).vectors(x, 8, 1, np.ones((1, 5), bool)) - x) for on in (False, True)
    ]
    assert errors[1] < errors[0] / 2
