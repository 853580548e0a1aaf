"""The trigger task: what its sequences hold, and that its targets are those that a loop in numpy finds."""

from __future__ import annotations

import dataclasses
import functools

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sinkjax.errors import SinkjaxError
from sinkjax.tasks.trigger.config import Trigger
from sinkjax.tasks.trigger.data import sample, targets
from sinkjax.train import step


def stream(seed: int) -> jax.Array:
    """A key of the generator that trainings use, which compiles in a fraction of the time of threefry."""
    return step.key(seed, "sequences", "hash")


KEY = stream(0)
KINDS = {
    "paper": Trigger(),
    "noisy": Trigger(bos="noisy"),
    "none": Trigger(bos="none"),
    "anchor": Trigger(second_anchor=True),
    "zero": Trigger(zero_token=True),
    "zero alone": Trigger(bos="none", zero_token=True),
    "all": Trigger(bos="noisy", second_anchor=True, zero_token=True, residual=True, noise=0.3),
    "residual": Trigger(residual=True),
    "small": Trigger(width=4, length=3),
    "narrow": Trigger(first=5, last=7),
}


@functools.cache
def drawn(name: str) -> tuple[np.ndarray, ...]:
    """x, y and j of 500 sequences."""
    return tuple(np.asarray(array) for array in sample(KEY, KINDS[name], 500))


@pytest.mark.parametrize("name", KINDS)
def test_tokens_hold_what_the_table_says(name: str) -> None:
    trigger = KINDS[name]
    L, n, s = trigger.length, trigger.width, trigger.specials
    x, y, j = drawn(name)
    assert x.shape == y.shape == (500, L, n)
    assert x.dtype == y.dtype == np.float32
    assert j.dtype == np.int32
    assert set(j) == set(range(trigger.span[0], trigger.span[1] + 1))
    at = np.arange(L) == j[:, None]
    np.testing.assert_array_equal(x[:, s:, 0], 0)
    np.testing.assert_array_equal(x[..., 1], at)
    np.testing.assert_array_equal(x[:, s:, -1], ~at[:, s:])
    noise = x[:, s:, 2:-1]
    assert -trigger.noise <= noise.min() < -0.9 * trigger.noise
    assert 0.9 * trigger.noise < noise.max() <= trigger.noise
    assert np.unique(noise).size > 0.99 * noise.size
    first = {"flag": [1.0] + [0.0] * (n - 1), "noisy": None, "none": None}[trigger.bos]
    if trigger.bos == "noisy":
        np.testing.assert_array_equal(x[:, 0, [0, 1, -1]], [[1, 0, 0]] * 500)
        assert np.abs(x[:, 0, 2:-1]).max() > 0.9 * trigger.noise
    elif first:
        np.testing.assert_array_equal(x[:, 0], [first] * 500)
    if trigger.second_anchor:
        np.testing.assert_array_equal(x[:, 1], [[1.0] + [0.0] * (n - 2) + [1.0]] * 500)
    if trigger.zero_token:
        np.testing.assert_array_equal(x[:, s - 1], 0)


@pytest.mark.parametrize("name", KINDS)
def test_targets_are_those_of_a_loop(name: str) -> None:
    trigger = KINDS[name]
    x, y, j = drawn(name)
    for sequence, target, place in zip(x.astype(np.float64), y, j, strict=True):
        want = sequence.copy() if trigger.residual else np.zeros_like(sequence)
        want[place] += sequence[trigger.specials : place + 1].mean(axis=0)
        np.testing.assert_allclose(target, want, rtol=0, atol=1e-6)


@settings(max_examples=30, deadline=None)
@given(kind=st.sampled_from(["paper", "none", "anchor"]), later=st.floats(-9, 9))
def test_nothing_after_the_trigger_matters(kind: str, later: float) -> None:
    trigger = KINDS[kind]
    x, y, j = drawn(kind)
    behind = np.arange(trigger.length) > j[:, None]
    np.testing.assert_array_equal(targets(np.where(behind[..., None], np.float32(later), x), j, trigger), y)


def test_a_key_decides_everything_and_sampling_can_be_traced() -> None:
    keys = jax.random.split(stream(5), 3)
    alone, other = (sample(keys[number], Trigger(), 8) for number in (1, 2))
    stacked = jax.jit(jax.vmap(lambda key: sample(key, Trigger(), 8)))(keys)
    for a, b, c in zip(alone, stacked, other, strict=True):
        np.testing.assert_allclose(a, b[1], rtol=0, atol=1e-7)
        assert (np.asarray(a) != np.asarray(c)).any()


@pytest.mark.parametrize("position", [-1, 0, 1, 16])
def test_a_trigger_outside(position: int) -> None:
    with pytest.raises(SinkjaxError, match=f"trigger position {position} .* 2 to 15"):
        sample(KEY, Trigger(), 2, position=position)
    assert int(sample(KEY, dataclasses.replace(Trigger(), first=9), 2, position=7)[2][0]) == 7
