"""The lower bounds of docs/results/trigger-bounds.md: their steps against samples, their shape, layers that try to get below."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sinkjax.errors import SinkjaxError
from sinkjax.papers.trigger import _bounds as bound
from sinkjax.papers.trigger._bounds import NOISE, Shape
from sinkjax.tasks.trigger.config import Trigger

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


def test_a_bound_falls_with_the_mass_and_ends_at_zero(values: dict[str, NDArray]):
    for name, found in values.items():
        assert np.all(np.diff(found) <= 1e-9), name
        assert np.all(found[:-1] > 0), name
        assert found[-1] == pytest.approx(0, abs=1e-30), name


def test_bounds_are_ordered_by_what_they_assume(values: dict[str, NDArray]):
    assert np.all(values["mean"] <= values["blind"])
    assert np.all(values["blind"] <= values["blind, each row"] + 1e-30)
    assert np.all(values["first row"] <= values["blind, each row"])


def test_a_bound_is_quadratic_near_a_full_sink(values: dict[str, NDArray]):
    for name, found in values.items():
        assert found[-3] / found[-2] == pytest.approx(100, rel=0.05), name


def test_an_attained_loss_lies_above_its_bound_and_close_to_it():
    for cap in (0.9, 0.99, 0.999):
        each = bound.even(np.full(PAPER.length, 1 - cap), PAPER)
        assert bound.blind(cap, PAPER, each=True) <= each <= 1.1 * bound.blind(cap, PAPER, each=True)
        leak = bound.leak_by_row(cap, PAPER)
        assert leak[PAPER.rows[0]].mean() == pytest.approx(1 - cap, abs=1e-12)
        assert bound.blind(cap, PAPER, each=False) <= bound.even(leak, PAPER) < each


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


@pytest.mark.parametrize(("tokens", "count"), [(2, 1), (3, 2), (5, 4)])
def test_the_largest_variances_of_a_common_shift_are_those_of_samples(tokens: int, count: int):
    """(19): the shift that leaves all differences alone is uniform on 2 less the range, in each coordinate."""
    draws = np.random.default_rng(0).uniform(-1, 1, (20_000, tokens, 13))
    variance = (2 - np.ptp(draws, axis=1)) ** 2 / 12
    assert variance.mean() == pytest.approx(2 / ((tokens + 1) * (tokens + 2)), rel=0.02)
    largest = np.sort(variance, axis=1)[:, -count:].sum(axis=1).mean()
    assert bound._largest(tokens, count, 13) == pytest.approx(largest, rel=0.02)


@given(
    room=st.floats(-2, 2), spread=st.floats(0.01, 1.5), kind=st.sampled_from(["two points", "uniform", "normal", "rarely large"])
)
def test_a_symmetric_variable_leaves_a_half_line_by_at_least_as_much(room: float, spread: float, kind: str):
    """(12), for variables of four shapes."""
    grid = (np.arange(4000) + 0.5) / 4000
    size = {
        "two points": np.ones_like(grid),
        "uniform": np.sqrt(3) * grid,
        "normal": np.abs(np.random.default_rng(0).normal(size=grid.size)),
        "rarely large": np.where(grid < 0.1, np.sqrt(10), 0),
    }[kind]
    r = size / np.sqrt((size**2).mean()) * spread
    left = (np.maximum(r - room, 0) ** 2 + np.maximum(-r - room, 0) ** 2).mean()
    assert left >= bound._half(np.array(room), np.array(spread)) - 1e-9


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 10_000), size=st.floats(0, 1.5), sharp=st.floats(0, 8))
def test_no_random_layer_lies_below(seed: int, size: float, sharp: float):
    """Value maps near a copy or far from it, weights at random or by random scores q.k, any mass on BOS."""
    rng = np.random.default_rng(seed)
    x, y, j = sample(SMALL, 400, seed)
    n, T = SMALL.width, SMALL.length
    value = np.diag(np.array([0, *[1.0] * (n - 1)])) + size * rng.normal(size=(n, n)) / np.sqrt(n)
    scores = (
        np.einsum("btn,nm,bsm->bts", x, sharp * rng.normal(size=(n, n)), x) if seed % 2 else sharp * rng.normal(size=(400, T, T))
    )
    scores[:, :, 0] += rng.normal() * 4
    scores = np.where(np.tril(np.ones((T, T), bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    averaged = np.tril(np.ones((T, T)))
    averaged[:, 0] = 0
    weights[np.arange(400), j] = averaged[j] / averaged[j].sum(axis=-1, keepdims=True)
    assert_above(((weights @ x @ value - y) ** 2).mean(), weights, j)


def assert_above(loss: float, weights: NDArray, j: NDArray) -> None:
    """A layer's loss is above the bounds for the BOS mass that it has; 400 sequences give both to a few per cent."""
    row = np.arange(SMALL.length)[None, :]
    mass = weights[:, :, 0]
    mean = float(mass[(row > 0) & (row != j[:, None])].mean())
    assert loss > 0.9 * bound.flags(
        CAPS[int(np.searchsorted(CAPS, mean))], SMALL
    )  # at the next mass of the list, so a little less
    assert loss > 0.9 * bound.first_row(float(mass[:, 1].max()), SMALL)


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
    assert_above(reached, np.asarray(weights(free)), np.asarray(j))
    assert reached > bound.first_row(cap, shape)


def test_attention_that_does_not_know_how_many_tokens_there_are_lies_above_its_bound_and_reaches_it():
    """The best sum over tokens of something linear in them, or in the trigger, by least squares on samples; the page's number."""
    x, y, j = sample(SMALL, 6000, seed=2)
    own = np.arange(len(j))
    ordinary = np.stack([row[1:place].sum(axis=0) for row, place in zip(x, j, strict=True)])
    seen = np.concatenate([ordinary, x[own, j], (j - 1)[:, None] * x[own, j], np.ones((len(j), 1))], axis=1)
    target = y[own, j]
    left = np.square(seen @ np.linalg.lstsq(seen, target, rcond=None)[0] - target).sum(axis=1).mean() / SMALL.cells
    assert bound.undivided(SMALL) == pytest.approx(left, rel=0.03)
    null = np.mean(PAPER.shares**2 + (1 - PAPER.shares) ** 2 + PAPER.noise * NOISE * PAPER.shares) / PAPER.cells
    page = PAGE.read_text(encoding="utf-8")
    assert f"{bound.undivided(PAPER):.2e}".replace("e-0", "e-") in page
    assert f"{100 * bound.undivided(PAPER) / null:.1f}%" in page


def test_the_sizes_are_those_of_the_data():
    assert Shape.of(Trigger()) == PAPER
    assert Shape.of(Trigger(width=9, length=6, last=4)) == Shape(9, 6, 2, 4)


def test_the_target_has_the_second_moments_that_the_bounds_take():
    _, y, j = sample(SMALL, 20_000, seed=5)
    target = y[np.arange(len(j)), j]
    moments = target.T @ target / len(j)
    h = SMALL.shares
    assert np.allclose(np.diag(moments)[2:-1], NOISE * h.mean(), rtol=0.05)
    assert np.linalg.eigvalsh(moments[1:, 1:])[0] == pytest.approx(bound._smallest(SMALL), rel=0.05)


def test_the_numbers_of_the_page_are_those_of_the_functions():
    lines = re.findall(r"^\| ([\d.]+) \| (.+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(lines) >= 5
    for cap, cells in lines:
        leak = np.full(PAPER.length, 1 - float(cap))
        found = [function(float(cap), PAPER) for function in BOUNDS.values()] + [bound.even(leak, PAPER)]
        assert [float(cell) for cell in cells.split(" | ")] == pytest.approx(found, rel=0.01)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Shape(16, 16, 1, 15), "first and last .* 2 .*1 and 15 of 16"),
        (lambda: Shape(3, 16, 2, 15), "width must be at least 4"),
        (lambda: Shape.of(Trigger(bos="noisy")), "the paper's data"),
        (lambda: bound.flags(1.5, PAPER), "BOS mass .*0 to 1, not 1.5"),
    ],
)
def test_wrong_inputs(make, message: str):
    with pytest.raises(SinkjaxError, match=message):
        make()
