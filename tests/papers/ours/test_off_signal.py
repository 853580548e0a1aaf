"""Replaced rows are rows, shams are what they are called, and outputs come from the other texts."""

from __future__ import annotations

import numpy as np
import pytest

from sinkjax.papers.ours.off_signal import (
    AWAY,
    BEHIND_FIRST,
    EVEN,
    FIRSTS,
    MEAN,
    NOTHING,
    ONE_ORDER,
    ORDINARY,
    OTHER,
    OWN,
    PERMUTED,
    ROWS,
    inherited,
    output_of,
    replacement,
)  # fmt: skip

LAYERS, TEXTS, HEADS, KEYS, POSITION = 2, 4, 3, 9, 5


@pytest.fixture
def weights(rng):
    drawn = np.zeros((LAYERS, TEXTS, HEADS, KEYS), np.float32)
    drawn[..., : POSITION + 1] = rng.dirichlet(np.ones(POSITION + 1), (LAYERS, TEXTS, HEADS))
    return drawn


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize("kind", ROWS)
def test_a_row_is_a_row_of_attention_on_the_keys_that_the_query_sees(kind, weights, rng):
    before = weights.copy()
    row = replacement(kind, weights, POSITION, rng)
    assert row.shape == weights.shape
    assert row.dtype == np.float32
    np.testing.assert_allclose(row.sum(axis=-1), 1, rtol=1e-6)
    assert not row[..., POSITION + 1 :].any()
    assert np.array_equal(weights, before)
    assert np.array_equal(row, weights) == (kind == OWN)


def test_rows_come_from_where_their_names_say(weights, rng):
    mean, other = (replacement(kind, weights, POSITION, rng) for kind in (MEAN, OTHER))
    np.testing.assert_allclose(mean[:, 1], weights[:, [0, 2, 3]].mean(axis=1), rtol=1e-6)
    assert np.array_equal(other[:, 1], weights[:, 0])
    for kind in (PERMUTED, BEHIND_FIRST, ONE_ORDER):
        np.testing.assert_array_equal(np.sort(replacement(kind, weights, POSITION, rng)), np.sort(weights))
    middle = replacement(BEHIND_FIRST, weights, POSITION, rng)
    assert np.array_equal(middle[..., [0, POSITION]], weights[..., [0, POSITION]])
    counted = np.broadcast_to(np.arange(1.0, KEYS + 1, dtype=np.float32), weights.shape)
    alike = replacement(ONE_ORDER, counted, POSITION, rng)
    assert (alike == alike[:1, :, :1]).all()
    assert (replacement(EVEN, weights, POSITION, rng)[..., : POSITION + 1] == np.float32(1 / 6)).all()


def test_an_output_is_the_mean_of_the_other_texts(rng):
    outputs = rng.standard_normal((LAYERS, TEXTS, KEYS, 8)).astype(np.float32)
    np.testing.assert_allclose(
        output_of(ORDINARY, outputs, rng)[:, 0], outputs[:, 1:, 1:].mean(axis=(1, 2)), rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(output_of(FIRSTS, outputs, rng)[:, 2], outputs[:, [0, 1, 3], 0].mean(axis=1), rtol=1e-5, atol=1e-6)
    assert not output_of(NOTHING, outputs, rng).any()
    away, ordinary = (np.linalg.norm(output_of(kind, outputs, rng), axis=-1) for kind in (AWAY, ORDINARY))
    np.testing.assert_allclose(away, ordinary, rtol=1e-5)


def test_an_heir_has_half_of_the_first_tokens_unedited_activation():
    import xarray

    sizes = np.ones((2, 2, 3, 4))  # edit, prompt, depth, position
    sizes[:, :, 1, 0] = 10.0
    sizes[1, 0, 2, 3] = 5.1
    sizes[1, 1, 2, 3] = 4.9
    data = xarray.Dataset({"resid_max": (("edit", "prompt", "depth", "position"), sizes)})
    assert inherited(0).of(data).tolist() == [[0.0, 0.0], [100.0, 0.0]]
