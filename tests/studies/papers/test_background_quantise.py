"""background/quantise: the error is that of rounding, and each claim needs every part of its rule."""

from __future__ import annotations

import numpy as np
import pytest
import xarray

from sinkjax.probes.statistics import View
from sinkjax.studies.papers.background import quantise
from sinkjax.studies.papers.background._position import growth
from sinkjax.studies.papers.background.quantise import MASKED, REMOVED, STUDY, Quantise
from sinkjax.studies.study import NO_EDIT
from tests.studies.planted import Planted, row

N, T = 8, 64


def test_the_error_is_what_rounding_to_255_steps_loses(rng):
    x = rng.standard_normal((2, 5, 8)).astype(np.float32)
    x[1, 4] = 1e6  # beyond the prompt's length
    view = View(np.array([5, 4]))
    for axes, scale in (((1, 2), np.abs(x[1, :4]).max()), ((2,), np.abs(x[1, :4]).max(axis=1, keepdims=True))):
        found = np.asarray(quantise.rounding_error(axes)(x, view))
        steps = np.round(x[1, :4] / scale * 127)
        assert np.abs(steps).max() == 127
        lost = np.linalg.norm(steps * scale / 127 - x[1, :4], axis=-1) / np.linalg.norm(x[1, :4], axis=-1)
        np.testing.assert_allclose(found[1, :4], lost, rtol=1e-3)
    assert not np.asarray(quantise.rounding_error((1, 2))(np.zeros((1, 2, 3), np.float32), View(np.array([2])))).any()


def test_one_massive_token_takes_the_steps_of_the_others(rng):
    x = rng.standard_normal((1, 5, 8)).astype(np.float32)
    plain = np.asarray(quantise.rounding_error((1, 2))(x, View(np.array([5]))))
    x[0, 0, 3] = 1000
    whole, rows = (np.asarray(quantise.rounding_error(axes)(x, View(np.array([5])))) for axes in ((1, 2), (2,)))
    assert plain.max() < 0.05
    np.testing.assert_allclose(whole[0, 1:], 1)  # all of it is rounded away
    assert rows[0, 1:].max() < 0.05


def test_the_embedding_and_the_position_itself_do_not_count():
    error = np.zeros((1, 2, 3, 4))  # edit, prompt, depth, position
    error[:, :, 0], error[..., 0] = 9, 9
    error[:, :, 1:, 1:] = 0.25
    data = xarray.Dataset({quantise.STREAM: (("edit", "prompt", "depth", "position"), error)})
    np.testing.assert_allclose(quantise.over_layers(quantise.STREAM, "", 0).of(data), 25)
    assert growth(np.array([[[1, 0], [2, 0], [9, 50], [10, 0]]]), 0) == 1


def test_controls_do_the_same_at_other_positions():
    shape = Planted(STUDY).architecture
    config = Quantise(position=2)
    _, dropped, masked = quantise.conditions(config, shape, 5)
    drawn = list(STUDY.controls[0].conditions(config, shape, 5))
    assert [entry.budget for entry in drawn] == [dropped.budget] * 20 + [masked.budget] * 20
    assert {entry.edit.terms[0].layers for entry in drawn[:20]} == {(5,)} == {dropped.edit.terms[0].layers}
    positions = [(entry.edit.terms[0].queries or entry.edit.terms[0].keys)[0] for entry in drawn]
    assert len(set(positions[:20])) == len(set(positions[20:])) == 20
    assert 2 not in positions
    assert max(positions) < T - 8


@pytest.mark.parametrize(
    ("change", "verdicts"),
    [
        ({}, "sss"),
        ({"removed": 30.3}, "iss"),
        ({"removed": 31}, "css"),  # more than half of the error is left
        ({"removed": 29, "token": -3}, "css"),  # less than half of what one scale a token saves
        ({"rank": 5}, "iss"),
        ({"token": 31}, "scs"),
        ({"masked": -5.1}, "ssi"),
        ({"masked": -7.2}, "ssc"),
        ({"largest": 10.0}, "iii"),
    ],
)
def test_each_claim_needs_every_part_of_its_rule(change, verdicts):
    found = {"plain": 60.0, "removed": 20.0, "token": 3.0, "rank": 0.0, "masked": -4.8, "largest": 11.0} | change
    tensor, token, *_ = (measure.name for measure in quantise.measures(Quantise()))
    rows = {
        (NO_EDIT, tensor): row(NO_EDIT, tensor, found["plain"]),
        (REMOVED, tensor): row(REMOVED, tensor, found["removed"], found["removed"] - found["plain"], found["rank"]),
        (MASKED, tensor): row(MASKED, tensor, 60.0, found["masked"]),
        (NO_EDIT, token): row(NO_EDIT, token, found["token"]),
    }
    largest = np.ones((1, N, 3, T))
    largest[..., 0] = found["largest"]
    store = xarray.Dataset({"resid_max": (("edit", "prompt", "depth", "position"), largest)})
    found = Planted(STUDY, rows=rows, stores={"sweep": store}).verdicts()
    assert [verdict[0] for verdict in found] == list(verdicts)
