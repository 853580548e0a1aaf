"""background/quantise: the error is that of rounding, and the edit is where the activation grows most."""

from __future__ import annotations

import numpy as np
import pytest

from sinkjax.papers.background.quantise import others_rounding, tensor_rounding, token_rounding
from sinkjax.probes.statistics import View
from sinkjax.study import run
from tests.study.tiny import of_any_size, study, write_both


def test_the_error_is_what_rounding_to_255_steps_loses(rng):
    x = rng.standard_normal((2, 5, 8)).astype(np.float32)
    x[1, 4] = 1e6  # beyond the prompt's length
    view = View(np.array([5, 4]))
    for rounding, scale in (
        (tensor_rounding, np.abs(x[1, :4]).max()),
        (token_rounding, np.abs(x[1, :4]).max(axis=1, keepdims=True)),
    ):
        found = np.asarray(rounding(x, view))
        steps = np.round(x[1, :4] / scale * 127)
        assert np.abs(steps).max() == 127
        lost = np.linalg.norm(steps * scale / 127 - x[1, :4], axis=-1) / np.linalg.norm(x[1, :4], axis=-1)
        np.testing.assert_allclose(found[1, :4], lost, rtol=1e-3)
    assert not np.asarray(tensor_rounding(np.zeros((1, 2, 3), np.float32), View(np.array([2])))).any()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    files = write_both(tmp_path_factory.mktemp("tiny"))
    small = {"controls": 4, "control_prompts": 2, "twin": False}
    with of_any_size():
        section = run.carry_out(study("background/quantise", files, **small), files / "out")
    return files / "out", section


def test_a_token_left_unrounded_sets_no_scale(rng):
    x = rng.standard_normal((1, 5, 8)).astype(np.float32)
    view = View(np.array([5]))
    others = np.asarray(tensor_rounding(x[:, 1:], View(np.array([4]))))
    x[0, 0, 3] = 1000
    np.testing.assert_allclose(np.asarray(others_rounding(0)(x, view))[:, 1:], others, rtol=1e-5)
