"""background/quantise: the error is that of rounding, and on SmolLM2 the massive activation makes it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import sinkjax
from sinkjax.experiments.background import quantise
from sinkjax.experiments.background.config import Quantise
from sinkjax.probes.record import Record
from sinkjax.probes.statistics import View
from sinkjax.studies import run
from tests.studies.tiny import study, write_both


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


def test_controls_do_the_same_at_other_positions():
    drawn = quantise.controls(Quantise(position=2), 5)
    assert [arm.budget for arm in drawn] == [1] * 20 + [2] * 20
    assert {arm.edit.terms[0].layers for arm in drawn[:20]} == {(5,)}
    positions = {(arm.edit.terms[0].queries or arm.edit.terms[0].keys)[0] for arm in drawn}
    assert 2 not in positions
    assert max(positions) < 64 - 8


def test_a_run_on_the_tiny_model_is_complete(tmp_path: Path):
    write_both(tmp_path)
    section = run.carry_out(study("background/quantise", tmp_path, controls=3, control_prompts=2), tmp_path / "out")
    assert {claim.verdict for claim in section.claims} == {"not applicable"}
    assert len(section.rows) == 3 * 5 + 2  # and the identity edits


def test_on_smollm2_the_other_tokens_lose_most_of_their_precision_to_the_first(smollm2):
    """Measured on this text: 57 % error with one scale, 11 % with the activation removed, 3 % with one scale a token."""
    text = "The river had risen in the night, and by morning the lower fields were under water as far as the mill and the road."
    tokens, lengths = sinkjax.encode(smollm2, [text], bos="none", length=24)

    def error(arm: quantise.Arm, statistic: str) -> float:
        record = sinkjax.forward(smollm2.params, tokens, smollm2.config, arm.edit, quantise.PROBE, lengths, logits=False).record
        values = {statistic: np.asarray(record[statistic])}
        data = sinkjax.to_dataset(Record(values, {statistic: ("prompt", "depth", "position")}))
        return float(quantise.over_layers(statistic, "", 0).of(data)[0])

    none, removed, _ = quantise.arms(Quantise(), 11)
    assert error(none, quantise.STREAM) > 40
    assert error(removed, quantise.STREAM) < error(none, quantise.STREAM) / 2
    assert error(none, quantise.ROWS) < error(none, quantise.STREAM) / 2
