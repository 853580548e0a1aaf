"""gu/rope-positions: the arms set what they say, verdicts follow their rule, and SmolLM2's sink stays at position 0."""

from __future__ import annotations

import numpy as np
import pytest

import sinkjax
from sinkjax.errors import SinkjaxError
from sinkjax.experiments.gu import rope_positions
from sinkjax.experiments.gu.config import RopePositions
from sinkjax.experiments.gu.rope_positions import REVERSED, SAME, ZERO
from sinkjax.studies import run
from tests.studies.tiny import study, write_both

CONFIG = RopePositions(length=10, places=(2, 5), shift=7, controls=30)


def indices(edit: sinkjax.Edit) -> list[int]:
    query, key = (np.asarray(term.value).tolist() for term in edit.terms)
    assert query == key
    return query


def test_the_arms_set_the_indices_that_they_name():
    arms = {arm.edit.label: arm for arm in rope_positions.arms(CONFIG)}
    assert arms["no edit"].edit.terms == ()
    assert indices(arms[SAME].edit) == list(range(10))
    assert indices(arms["all indices + 7"].edit) == list(range(7, 17))
    assert indices(arms[ZERO].edit) == [0] * 10
    assert indices(arms[REVERSED].edit) == list(range(9, -1, -1))
    assert indices(arms["index 0 becomes 5"].edit) == [5, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert indices(arms["indices 0 and 5 swapped"].edit) == [5, 1, 2, 3, 4, 0, 6, 7, 8, 9]
    assert len(arms) == 5 + 2 * 2


def test_controls_change_as_many_indices_but_never_that_of_the_first_token():
    drawn = rope_positions.controls(CONFIG)
    changed = [(np.array(indices(arm.edit)) != np.arange(10)) for arm in drawn]
    assert [int(mask.sum()) for mask in changed] == [arm.budget for arm in drawn] == [1, 2] * 30
    assert not any(mask[0] for mask in changed)
    assert {arm.budget for arm in rope_positions.arms(CONFIG)} == {None, 1, 2}
    assert len({arm.edit.label for arm in drawn}) == len(drawn)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("rope-positions")
    fields = {"places": [3, 8], "controls": 3, "repeat_prompts": 2, "control_prompts": 2}
    published = {"published_places": [3], "published_taken": [1.0], "published_swapped": [2.0], "published_moved": [50.0]}
    return run.carry_out(study("gu/rope-positions", write_both(folder), **fields, **published), folder / "out")


def test_a_run_has_both_kinds_of_input(finished):
    table = {(row.arm, row.measure): row for row in finished.rows}
    loss = "loss (nats per token)"
    same, none = table[f"natural text: {SAME}", loss], table["natural text: no edit", loss]
    assert same.value.mean == none.value.mean
    assert table["natural text: all indices + 100", loss].value.mean == pytest.approx(none.value.mean, rel=1e-5)
    assert table[f"natural text: {REVERSED}", loss].value.mean != pytest.approx(none.value.mean, rel=1e-5)
    assert table["natural text: indices 0 and 3 swapped", loss].controls == 3
    assert table["one token repeated: indices 0 and 3 swapped", loss].percentile is None
    assert set(finished.featured) <= {row.arm for row in finished.rows}


def test_claims_are_judged_and_the_papers_numbers_are_beside_them(finished):
    vectors, repeated, text = finished.claims
    assert vectors.verdict == "not applicable"
    assert "50.00 to 50.00 % on key t" in vectors.paper
    assert repeated.verdict == "confirmed"
    assert text.verdict == "not applicable"  # random weights have no sink


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"places": ()}, "places is empty"),
        ({"places": (0, 3)}, "places must be different positions from 1 to 63, and holds 0"),
        ({"places": (3, 64)}, "and holds 64"),
        ({"published_taken": (1.0,)}, "published_taken needs one number for each of published_places, 0"),
    ],
)
def test_a_config_that_makes_no_sense_is_refused(fields, sentence):
    with pytest.raises(SinkjaxError, match=sentence):
        RopePositions(**fields)


def test_on_smollm2_the_sink_stays_at_position_0_when_its_index_is_another(smollm2):
    """Measured: with index 0 and 9 swapped, 76 % of heads sink on key 0 and none on key 9, as 75 % without an edit."""
    text = "In the winter of that year the company bought two ships, and sent them north with orders to return before the frost."
    tokens, lengths = sinkjax.encode(smollm2, [text], bos="none", length=24)
    config = RopePositions(length=tokens.shape[1], places=(9,))
    (edit,) = [arm.edit for arm in rope_positions.arms(config) if arm.edit.label == "indices 0 and 9 swapped"]
    record = sinkjax.forward(smollm2.params, tokens, smollm2.config, edits=edit, lengths=lengths, logits=False).record
    assert sinkjax.analysis.metrics.sink_rate(record, 0, 0.3)[0] > 0.5
    assert sinkjax.analysis.metrics.sink_rate(record, 9, 0.3)[0] < 0.1
