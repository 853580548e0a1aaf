"""The lower bounds of docs/results/trigger-bounds.md: their steps against samples, their shape, layers that try to get below."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import optax
import pytest
from numpy.typing import NDArray

from sinkjax.papers.trigger import _bounds as bound
from sinkjax.papers.trigger._bounds import Shape

PAPER = Shape(width=16, length=16, first=2, last=15)
SMALL = Shape(width=9, length=6, first=2, last=5)
STEPS = 500
CAPS = (0.0, 0.5, 0.9, 0.99, 0.999, 1.0)
PAGE = Path(__file__).parents[3] / "docs" / "results" / "trigger-bounds.md"
BOUNDS = {
    "mean": bound.flags,
    "first row": bound.first_row,
    "blind": lambda cap, shape: bound.blind(cap, shape, each=False),
    "blind, each row": lambda cap, shape: bound.blind(cap, shape, each=True),
}


@pytest.fixture(scope="module")
def values() -> dict[str, NDArray]:
    return {name: np.array([function(cap, PAPER) for cap in CAPS]) for name, function in BOUNDS.items()}


def sample(shape: Shape, count: int, seed: int) -> tuple[NDArray, NDArray, NDArray]:
    """Sequences [count, L, n], targets and trigger positions, made here a second time, by the table of the task."""
    rng = np.random.default_rng(seed)
    x = np.zeros((count, shape.length, shape.width))
    x[:, 0, 0] = 1
    x[:, 1:, 2:-1] = rng.uniform(-1, 1, (count, shape.length - 1, shape.noise))
    x[:, 1:, -1] = 1
    j = rng.integers(shape.first, shape.last + 1, count)
    x[np.arange(count), j, 1] = 1
    x[np.arange(count), j, -1] = 0
    y = np.zeros_like(x)
    for row, place in enumerate(j):
        y[row, place] = x[row, 1 : place + 1].mean(axis=0)
    return x, y, j


def test_the_attained_loss_is_that_of_a_layer():
    """(29), by least squares over 4,000 sequences instead of in closed form."""
    x, y, j = sample(SMALL, 4000, seed=1)
    leak = np.array([0, 0.5, 0.4, 0.3, 0.2, 0.1])
    mixed = np.zeros_like(x)
    for row in range(SMALL.length):
        mixed[:, row] = (1 - leak[row]) * x[:, 0] + (leak[row] * x[:, 1 : row + 1].mean(axis=1) if row else 0)
    mixed[:, 0] = x[:, 0]
    own = np.arange(len(j))
    mixed[own, j] = y[own, j]
    inputs, targets = mixed.reshape(-1, SMALL.width), y.reshape(-1, SMALL.width)
    fitted = inputs @ np.linalg.lstsq(inputs, targets, rcond=None)[0]
    assert bound.even(leak, SMALL) == pytest.approx(((fitted - targets) ** 2).mean(), rel=0.03)


@pytest.mark.parametrize("cap", [0.0, 0.5, 0.9, 0.99])
def test_no_layer_trained_to_get_below_does(cap: float):
    """Adversaries with a value map of their own and weights chosen freely for each sequence."""
    import jax
    import jax.numpy as jnp

    shape, count = SMALL, 512
    x, y, j = (jnp.asarray(array) for array in sample(shape, count, seed=3))
    rows = jnp.arange(shape.length)
    other = (rows > 0) & (rows != j[:, None])
    seen = jnp.tril(jnp.ones((shape.length, shape.length), bool)).at[:, 0].set(False)

    def weights(free: dict[str, jax.Array]) -> jax.Array:
        mass = jnp.where(other, cap, 1) * jax.nn.sigmoid(free["bos"])
        mass = mass.at[:, 0].set(1.0)
        rest = jnp.where(seen, jax.nn.softmax(jnp.where(seen, free["scores"], -1e9), axis=-1), 0)
        return ((1 - mass)[..., None] * rest).at[:, :, 0].set(mass)

    def loss(free: dict[str, jax.Array]) -> jax.Array:
        return jnp.square(weights(free) @ x @ free["value"] - y).mean()

    free = {
        "value": 0.7 * jnp.eye(shape.width),
        "scores": jnp.zeros((count, shape.length, shape.length)),
        "bos": jnp.where(other, 9.0, -2.0),
    }
    optimiser = optax.adam(optax.cosine_decay_schedule(0.05, STEPS))

    def step(carry: tuple, _: None) -> tuple[tuple, None]:
        free, state = carry
        changes, state = optimiser.update(jax.grad(loss)(free), state)
        return (optax.apply_updates(free, changes), state), None

    (free, _), _ = jax.jit(lambda carry: jax.lax.scan(step, carry, length=STEPS))((free, optimiser.init(free)))
    reached = float(loss(free))
    assert reached < 1.2 * bound.even(np.full(shape.length, 1 - cap), shape)  # it did try
    mass = np.asarray(weights(free))[:, :, 0]
    next_cap = CAPS[int(np.searchsorted(CAPS, float(mass[np.asarray(other)].mean())))]
    assert reached > 0.9 * bound.flags(next_cap, shape)  # so a little less; 512 sequences give both to a few per cent
    assert reached > max(0.9 * bound.first_row(float(mass[:, 1].max()), shape), bound.first_row(cap, shape))


def test_the_numbers_of_the_page_are_those_of_the_functions():
    lines = re.findall(r"^\| ([\d.]+) \| (.+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(lines) >= 5
    for cap, cells in lines:
        leak = np.full(PAPER.length, 1 - float(cap))
        found = [function(float(cap), PAPER) for function in BOUNDS.values()] + [bound.even(leak, PAPER)]
        assert [float(cell) for cell in cells.split(" | ")] == pytest.approx(found, rel=0.01)
