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


@names
def test_second_derivatives(name: str) -> None:
    ours, plain, args = pair(name)
    way = [np.ones_like(entry) for entry in args]

    def curvature(f: Callable) -> list[jax.Array]:
        return jax.jvp(lambda *at: jax.grad(f_sum(f), (0, 1))(*at), args, way)[1]

    for mine, want in zip(curvature(ours), curvature(plain), strict=True):
        np.testing.assert_allclose(mine, want, rtol=1e-11, atol=1e-11)


def test_the_gradient_on_a_cpu_has_no_product_over_the_middle_axis_of_its_left_side() -> None:
    """The form that XLA's CPU code computes three times slower."""

    def loss(q, k, v):
        return (ops.mix(ops.score(q, k, 0.5, "highest"), v, "highest") ** 2).sum()

    args = [jnp.ones((4, 1, 8, 8), jnp.float32)] * 3
    text = jax.jit(jax.grad(loss, (0, 1, 2))).lower(*args).compile().as_text()
    products_found = [line for line in text.splitlines() if "lhs_contracting_dims" in line and "batch_dims" in line]
    assert len(products_found) >= 5
    assert not [line for line in products_found if "lhs_contracting_dims={1}" in line]


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_scores_of_16_bit_numbers_are_those_of_the_same_numbers_in_float32(backend: str, dtype: str, monkeypatch) -> None:
    """Products of two of them are exact, so that only the order of sums and the place of the scale remain; derivatives too."""
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    noise = np.random.default_rng(0)
    q, k = (jnp.asarray(noise.standard_normal((2, 3, size, 128)), dtype) for size in (5, 7))
    assert ops.multiplied_dtype(q.dtype) == (jnp.float32 if backend == "cpu" else dtype)

    def curved(q: jax.Array, k: jax.Array) -> jax.Array:
        return jnp.sin(ops.score(q, k, 0.3, "highest")).sum()

    wide = (q.astype(jnp.float64), k.astype(jnp.float64))
    scores = ops.score(q, k, 0.3, "highest")
    assert scores.dtype == jnp.float32
    np.testing.assert_allclose(scores, 0.3 * np.einsum("BKRD,BKSD->BKRS", *wide), rtol=1e-5, atol=1e-5)
    for mine, want in zip(jax.grad(curved, (0, 1))(q, k), jax.grad(curved, (0, 1))(*wide), strict=True):
        assert mine.dtype == dtype
        np.testing.assert_allclose(mine.astype(jnp.float64), want, rtol=0.02, atol=0.02)


def test_off_a_cpu_16_bit_numbers_are_multiplied_as_they_are(monkeypatch) -> None:
    """With no copy in float32 before the product, and with float32 after it."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    args = [jnp.ones((1, 2, 4, 8), jnp.bfloat16)] * 2
    (product,) = [
        equation
        for equation in jax.make_jaxpr(lambda q, k: ops.score(q, k, 0.3, "highest"))(*args).eqns
        if equation.primitive.name == "dot_general"
    ]
    assert [entry.aval.dtype for entry in product.invars] == [jnp.bfloat16] * 2
    assert product.outvars[0].aval.dtype == jnp.float32
