"""background/quantise: the error is that of rounding, and the edit is where the activation grows most."""

from __future__ import annotations

import numpy as np

from sinkjax.papers.background.quantise import rounding_error
from sinkjax.probes.statistics import View


def test_the_error_is_what_rounding_to_255_steps_loses(rng):
    x = rng.standard_normal((2, 5, 8)).astype(np.float32)
    x[1, 4] = 1e6  # beyond the prompt's length
    view = View(np.array([5, 4]))
    for rounding, scale in (
        (rounding_error((1, 2)), np.abs(x[1, :4]).max()),
        (rounding_error((2,)), np.abs(x[1, :4]).max(axis=1, keepdims=True)),
    ):
        found = np.asarray(rounding(x, view))
        steps = np.round(x[1, :4] / scale * 127)
        assert np.abs(steps).max() == 127
        lost = np.linalg.norm(steps * scale / 127 - x[1, :4], axis=-1) / np.linalg.norm(x[1, :4], axis=-1)
        np.testing.assert_allclose(found[1, :4], lost, rtol=1e-3)
    assert not np.asarray(rounding_error((1, 2))(np.zeros((1, 2, 3), np.float32), View(np.array([2])))).any()


def test_a_token_left_unrounded_sets_no_scale(rng):
    x = rng.standard_normal((1, 5, 8)).astype(np.float32)
    view = View(np.array([5]))
    others = np.asarray(rounding_error((1, 2))(x[:, 1:], View(np.array([4]))))
    x[0, 0, 3] = 1000
    np.testing.assert_allclose(np.asarray(rounding_error((1, 2), 0)(x, view))[:, 1:], others, rtol=1e-5)
