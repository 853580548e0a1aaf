"""The products of attention: plain numbers, and derivatives that are those of the plain products in every mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sinkjax.model import ops

SHAPES = {"score": ((2, 3, 5, 4), (2, 3, 7, 4)), "mix": ((2, 3, 5, 7), (2, 3, 7, 4))}
PLAIN = {"score": "BKRD,BKSD->BKRS", "mix": "BKRS,BKSD->BKRD"}
names = pytest.mark.parametrize("name", SHAPES)


@pytest.fixture(scope="module", autouse=True)
def x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def pair(name: str) -> tuple[Callable, Callable, list[np.ndarray]]:
    noise = np.random.default_rng(0)
    plain = lambda x, y: jnp.einsum(PLAIN[name], x, y, precision="highest")  # noqa: E731
    return (
        lambda x, y: ops.score(x, y, 1, "highest") if name == "score" else ops.mix(x, y, "highest"),
        plain,
        [noise.standard_normal(shape) for shape in SHAPES[name]],
    )


@names
def test_numbers_are_those_of_the_plain_product_bit_for_bit(name: str, monkeypatch) -> None:
    ours, plain, args = pair(name)
    np.testing.assert_array_equal(jax.jit(ours)(*args), jax.jit(plain)(*args))
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    np.testing.assert_array_equal(ours(*args), plain(*args))


@names
@pytest.mark.parametrize("mode", [jax.jacrev, jax.jacfwd, lambda f, argnums: jax.jit(jax.vmap(jax.grad(f_sum(f), argnums)))])
def test_derivatives_in_both_modes_and_batched(name: str, mode: Callable) -> None:
    ours, plain, args = pair(name)
    if mode not in (jax.jacrev, jax.jacfwd):
        args = [np.stack([entry, 2 - entry]) for entry in args]
    for mine, want in zip(mode(ours, (0, 1))(*args), mode(plain, (0, 1))(*args), strict=True):
        np.testing.assert_allclose(mine, want, rtol=1e-12, atol=1e-12)


def f_sum(f: Callable) -> Callable:
    """A curved function of the product, so that the incoming gradient is not constant."""
    return lambda *args: jnp.sin(f(*args)).sum()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_scores_of_16_bit_numbers_are_those_of_the_same_numbers_in_float32(dtype: str) -> None:
    """Products of two of them are exact, so that only the order of sums and the place of the scale remain; derivatives too."""
    noise = np.random.default_rng(0)
    q, k = (jnp.asarray(noise.standard_normal((2, 3, size, 128)), dtype) for size in (5, 7))

    def curved(q: jax.Array, k: jax.Array) -> jax.Array:
        return jnp.sin(ops.score(q, k, 0.3, "highest")).sum()

    wide = (q.astype(jnp.float64), k.astype(jnp.float64))
    scores = ops.score(q, k, 0.3, "highest")
    assert scores.dtype == jnp.float32
    np.testing.assert_allclose(scores, 0.3 * np.einsum("BKRD,BKSD->BKRS", *wide), rtol=1e-5, atol=1e-5)
    for mine, want in zip(jax.grad(curved, (0, 1))(q, k), jax.grad(curved, (0, 1))(*wide), strict=True):
        assert mine.dtype == dtype
        np.testing.assert_allclose(mine.astype(jnp.float64), want, rtol=0.02, atol=0.02)


def test_bfloat16_is_multiplied_in_bfloat16_in_derivatives_too() -> None:
    """Outputs are those of float32 products of the same numbers, and derivatives differ from theirs by their rounding."""
    noise = np.random.default_rng(1)
    x, w, q, k = (jnp.asarray(noise.standard_normal(s), jnp.bfloat16) for s in ((2, 5, 8), (8, 50), (1, 1, 5, 8), (1, 1, 7, 8)))

    def found(*args: jax.Array) -> list[jax.Array]:
        x, w, q, k = args
        weights = jax.nn.softmax(ops.score(q, k, 0.3, "highest")).astype(jnp.bfloat16).astype(q.dtype)
        return [jnp.sin(ops.project(x, w, "highest", wide=True)), ops.mix(weights, k, "highest")]

    gradient = lambda *args: jax.grad(lambda *at: sum(out.sum() for out in found(*at)), (0, 1, 2, 3))(*args)  # noqa: E731
    wide = [each.astype(jnp.float32) for each in (x, w, q, k)]
    for mine, want in zip(found(x, w, q, k), found(*wide), strict=True):
        assert mine.dtype == want.dtype == jnp.float32
        np.testing.assert_allclose(mine, want, rtol=1e-5, atol=1e-5)
    for mine, want in zip(gradient(x, w, q, k), gradient(*wide), strict=True):
        norm = np.linalg.norm(np.asarray(want, np.float64))
        assert (
            np.linalg.norm(np.asarray(mine, np.float64) - np.asarray(want, np.float64))
            < 4 * float(jnp.finfo(jnp.bfloat16).eps) * norm
        )
    products_found = [line for line in jax.jit(gradient).lower(x, w, q, k).as_text().splitlines() if "dot_general" in line]
    assert len(products_found) == 3 * 3 - 1  # the sum of the last product needs only its derivatives
    assert not [line for line in products_found if "xf32>, tensor" in line]
