"""Directions are orthonormal, come from the other half of the texts, and are those that they are called."""

from __future__ import annotations

import numpy as np
import pytest

from sinkjax.papers.ours.off_subspace import CENTRED, DRAWN, KINDS, LEADING, SHARED, SWITCH, bases, found_on

LAYERS, TEXTS, TOKENS, WIDTH, COUNT, LAST = 3, 6, 12, 8, 2, 1


class Run:
    """A model whose attention outputs are known."""

    def __init__(self, outputs):
        self.outputs = outputs

    def captured(self, capture):
        return {capture.name: self.outputs}


@pytest.fixture
def outputs():
    """A constant vector of each layer, much variance along dim 2, a first token without the constant; the last text is short."""
    rng = np.random.default_rng(0)
    drawn = 0.1 * rng.standard_normal((LAYERS, TEXTS, TOKENS, WIDTH)).astype(np.float32)
    drawn[..., 2] *= 20
    for layer in range(LAYERS):
        drawn[layer, :, 1:, 4 + layer] += 10
    drawn[:, -1, 8:] = np.nan
    return drawn


def test_directions_are_those_that_they_are_called(outputs):
    found = found_on(outputs, COUNT, LAST, np.random.default_rng(1))
    for kind in KINDS:
        directions = found[kind]
        assert directions.shape == (LAYERS, 1 if kind == SWITCH else COUNT, WIDTH)
        assert directions.dtype == np.float32
        np.testing.assert_allclose(
            directions @ directions.swapaxes(1, 2),
            np.broadcast_to(np.eye(directions.shape[1]), (LAYERS, *[directions.shape[1]] * 2)),
            atol=1e-5,
        )
    for layer in range(LAYERS):
        assert np.abs(found[LEADING][layer, 0, 4 + layer]) > 0.95
        assert np.abs(found[LEADING][layer, 1, 2]) > 0.95
        assert np.abs(found[CENTRED][layer, 0, 2]) > 0.95
        assert found[SWITCH][layer, 0, 4 + layer] > 0.95
    assert (found[SHARED] == found[SHARED][0]).all()
    plane = np.abs(found[SHARED][0]) ** 2
    assert plane.sum(axis=0)[[4, 5]].sum() > 1.9  # of the layers up to the last one, and not of the layer behind it
    assert not np.allclose(found[DRAWN][0], found[DRAWN][1])


def test_a_prompt_gets_directions_from_the_other_half(outputs):
    changed = outputs.copy()
    changed[:, 0] += 5
    before, after = (bases(COUNT, LAST, np.random.default_rng(1), Run(of)) for of in (outputs, changed))
    for kind in KINDS:
        assert before[kind].shape == (LAYERS, TEXTS, 1 if kind == SWITCH else COUNT, WIDTH)
        np.testing.assert_array_equal(before[kind][:, ::2], after[kind][:, ::2])
        assert np.allclose(before[kind][:, 1::2], after[kind][:, 1::2]) == (kind == DRAWN)
    one = bases(COUNT, LAST, np.random.default_rng(1), Run(outputs[:, :1]))
    assert one[LEADING].shape == (LAYERS, 1, COUNT, WIDTH)
