"""The hash generator gives words without a pattern that these tests can see, the same under vmap and jit."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from sinkjax.train import step

N = 1 << 18


def stream(*path: int):
    key = step.key(0, "a name", "hash")
    for number in path:
        key = jax.random.fold_in(key, number)
    return key


def test_each_bit_is_set_in_half_of_the_words_and_no_two_go_together():
    words = np.asarray(jax.random.bits(stream(5), (N,)))
    table = ((words[:, None] >> np.arange(32, dtype=np.uint32)) & 1).astype(np.float64)
    z = (table.mean(0) - 0.5) * 2 * np.sqrt(N)
    assert np.abs(z).max() < 4.5
    together = np.corrcoef(table.T)[np.triu_indices(32, 1)] * np.sqrt(N)
    assert np.abs(together).max() < 5


def test_streams_of_other_seeds_runs_and_steps_are_independent():
    keys = [step.key(seed, "a name", "hash") for seed in range(8)] + [step.key(0, "another", "hash")]
    keys += [stream(run) for run in range(8)] + [stream(3, step) for step in range(48)]
    table = np.stack([np.asarray(jax.random.uniform(key, (4096,))) for key in keys])
    together = np.corrcoef(table)[np.triu_indices(len(keys), 1)] * np.sqrt(4096)
    assert np.abs(together).max() < 5.2
    assert stats.kstest(table[:, 0], "uniform").pvalue > 1e-3  # the first word over keys


@pytest.mark.parametrize("draw", [jax.random.bits, jax.random.uniform, jax.random.normal])
def test_a_draw_depends_on_its_key_alone(draw):
    keys = jax.random.split(stream(7), 5)
    alone = jnp.stack([draw(key, (33, 3)) for key in keys])
    assert np.array_equal(alone, jax.vmap(lambda key: draw(key, (33, 3)))(keys))
    assert np.array_equal(alone, jax.jit(jax.vmap(lambda key: draw(key, (33, 3))))(keys))


def test_threefry_is_that_of_jax():
    assert np.array_equal(
        jax.random.uniform(step.key(3, "x", "threefry"), (4,)),
        jax.random.uniform(jax.random.fold_in(jax.random.key(3), __import__("zlib").crc32(b"x")), (4,)),
    )
