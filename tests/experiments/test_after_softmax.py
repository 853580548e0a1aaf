"""kiya/after-softmax: weights renormalised are those of the edited logits, and those set to 0 move no sink on SmolLM2."""

from __future__ import annotations

import numpy as np
import pytest

import sinkjax
from sinkjax.errors import SinkjaxError
from sinkjax.experiments.kiya import after_softmax
from sinkjax.experiments.kiya.config import AfterSoftmax
from sinkjax.probes.statistics import sinking_heads
from sinkjax.studies import run
from tests.experiments.test_mask import TEXTS
from tests.studies.tiny import study, write_both

CONFIG = AfterSoftmax(length=20, position=3, first_layers=(2, 1, 9))
WAYS = tuple(after_softmax.WAYS)


@pytest.fixture(scope="module")
def section(tmp_path_factory: pytest.TempPathFactory):
    folder = write_both(tmp_path_factory.mktemp("tiny"))
    fields = {"position": 2, "controls": 4, "control_prompts": 2, "map_layers": (0, 2), "first_layers": (1,)}
    return run.carry_out(study("kiya/after-softmax", folder, **fields), folder / "out")


def test_arms_are_both_edits_in_three_ways_and_some_layers():
    _, *edited = after_softmax.arms(CONFIG, 5)
    assert [arm.place for arm in edited] == [1, 2, 5] * 6
    assert [arm.budget for arm in edited] == [None, None, 5] * 6
    assert len({arm.edit.label for arm in edited}) == 18
    assert [arm.group for arm in edited[::3]] == [f"{what}, {way}" for what in ("key 0 masked", "query 3 alone") for way in WAYS]


def test_every_edit_and_way_has_its_own_controls():
    _, *drawn = after_softmax.controls(CONFIG, 5)
    groups = {arm.group for arm in after_softmax.arms(CONFIG, 5)[1:]}
    assert {group: sum(arm.group == group for arm in drawn) for group in groups} == dict.fromkeys(groups, 20)
    for arm in drawn:
        (term,) = arm.edit.terms
        if "masked" in arm.group:
            assert (arm.place, 0 in term.keys) == (1, False)
        else:
            assert len(set(range(arm.place + 1)) - set(term.keys)) == 1


def test_the_ways_are_equal_or_not_as_the_study_says(tiny_config, tiny_params):
    """Renormalised weights give the logits' numbers; weights set to 0 give the same ones before the sum over keys is 1 again."""
    tokens = np.arange(40).reshape(2, 20)

    def weights(way: str, **selected: int) -> np.ndarray:
        edit = after_softmax.change(way, range(1), relation="others", **selected)
        probe = sinkjax.Probe(attention=(0,))
        return np.asarray(sinkjax.forward(tiny_params, tokens, tiny_config, edits=edit, probe=probe).record["attention"])[:, 0]

    for selected in ({"keys": 0}, {"queries": 3}):
        before, renormalised, after = (weights(way, **selected) for way in WAYS)
        np.testing.assert_allclose(renormalised, before, atol=1e-6)
        sums = after.sum(axis=-1, keepdims=True)
        assert (sums < 0.999).any()
        np.testing.assert_allclose(after / sums, before, atol=1e-6)


def test_a_run_says_how_much_attention_is_left(section):
    left = {row.arm: row.value.mean for row in section.rows if row.measure == after_softmax.LEFT}
    assert left["no edit"] == pytest.approx(100, abs=1e-3)
    assert left["key 0 masked in all layers (logits)"] == pytest.approx(100, abs=1e-3)
    assert left["key 0 masked in all layers (weights, renormalised)"] == pytest.approx(100, abs=1e-3)
    assert left["key 0 masked in all layers (weights)"] < left["key 0 masked in layer 0 (weights)"] < 99


def test_a_model_that_guesses_without_an_edit_cannot_collapse(section):
    assert [claim.verdict for claim in section.claims] == ["not applicable"] * 2
    assert len(section.rows) == 5 * (1 + 6 * 2) + 3  # and the identity edits


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"position": 56}, "position is 56, beyond 55"),
        ({"key": 55}, r"key \+ 1 is 56, beyond 55"),
        ({"position": 0}, "position must be at least 1"),
        ({"first_layers": (0,)}, "first_layers has 0"),
    ],
)
def test_a_config_that_makes_no_sense_is_refused(fields, sentence):
    with pytest.raises(SinkjaxError, match=sentence):
        AfterSoftmax(**fields)


def test_on_smollm2_weights_set_to_0_cost_more_than_logits_and_move_no_sink(smollm2):
    tokens, lengths = sinkjax.encode(smollm2, TEXTS, bos="none", length=24)
    probe = sinkjax.Probe(nll=True, extra=(sinking_heads(0.3, shares=True),))

    def measured(way: str) -> tuple[float, float]:
        edit = after_softmax.change(way, None, keys=0, relation="others")
        run = sinkjax.forward(smollm2.params, tokens, smollm2.config, edits=edit, probe=probe, lengths=lengths, logits=False)
        return float(np.nanmean(run.record["nll"])), float(100 * run.record["sinking_heads"][..., 1].mean())

    (before, moved), (renormalised, same), (after, stayed) = (measured(way) for way in WAYS)
    assert moved > 50 > 10 > stayed
    assert (renormalised, same) == pytest.approx((before, moved), rel=1e-3)
    assert before + 0.25 < after < np.log(smollm2.config.vocab_size)
