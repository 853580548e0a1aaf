"""kiya/after-softmax: both edits in three ways, controls of the same kind, and when an output counts as collapsed."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import xarray

from sinkjax.analysis.claims import judge
from sinkjax.errors import SinkjaxError
from sinkjax.studies.papers.kiya import after_softmax as study
from sinkjax.studies.papers.kiya.after_softmax import AFTER, BEFORE, RENORMALISED, WAYS, AfterSoftmax, label
from sinkjax.studies.study import NO_EDIT
from tests.studies.planted import Planted, row

CONFIG = AfterSoftmax(length=24, position=3, first_layers=(2, 1, 9))
MODEL = SimpleNamespace(layers=5)
LOSS = "loss (nats per token)"
MASKED, ALONE = CONFIG.edits


@pytest.mark.parametrize(
    ("losses", "verdict"),
    [
        ({}, "c"),
        ({label(MASKED, AFTER): 6}, "s"),  # log(100) is 4.6, and the intervals reach 1 to either side
        ({label(ALONE, AFTER): 6}, "s"),  # either edit is enough
        ({label(MASKED, AFTER): 5}, "i"),
        ({label(MASKED, RENORMALISED): 6}, "c"),
        ({label(MASKED, BEFORE): 9}, "c"),
        ({NO_EDIT: 6, label(MASKED, AFTER): 9}, "n"),  # it guesses anyway
    ],
)
def test_an_output_has_collapsed_that_is_no_better_than_guessing(losses, verdict):
    rows = {(name, LOSS): row(name, LOSS, value) for name, value in losses.items()}
    collapse, _ = study.claims(CONFIG, SimpleNamespace(vocab_size=100))
    assert judge(collapse, Planted(study.STUDY, CONFIG, {"vocab_size": 100}, rows)).verdict[0] == verdict


@pytest.mark.parametrize(("apart", "verdict"), [(0.009, "holds"), (0.011, "fails")])
def test_renormalised_weights_are_those_of_the_masked_logits_to_rounding(apart, verdict):
    labels = [label(what, way) for what in CONFIG.edits for way in (BEFORE, RENORMALISED)]
    nll = xarray.DataArray(np.ones((4, 2, 3)), {"edit": labels}, ("edit", "prompt", "position")).copy()
    nll[-1, 1, 2] += apart
    nll[:, 0, 1] = np.nan  # beyond a prompt
    _, identity = study.claims(CONFIG, SimpleNamespace(vocab_size=100))
    results = SimpleNamespace(data=xarray.Dataset({"nll": nll}), config=CONFIG)
    assert judge(identity, results).verdict == verdict


def test_conditions_are_both_edits_in_three_ways_and_some_layers():
    none, *edited = study.conditions(CONFIG, MODEL)
    assert none.at == (1, 3)
    assert [entry.x for entry in edited] == [1, 2, 5] * 6
    assert [entry.budget for entry in edited] == [budget for what in CONFIG.edits for way in WAYS for budget in _all(what, way)]
    assert [entry.series for entry in edited[::3]] == [f"{what}, {way}" for what in CONFIG.edits for way in WAYS]
    assert [entry.at for entry in edited] == [(1,)] * 9 + [(3,)] * 9
    assert len({entry.label for entry in edited}) == 18


def _all(what: str, way: str) -> tuple[None, None, str]:
    """The budgets of a series: controls are those of all layers."""
    return None, None, f"{what}, {way}"


def test_the_ways_change_the_same_cells_in_three_ways():
    _, *edited = study.conditions(CONFIG, MODEL)
    for what in CONFIG.edits:
        terms = [next(entry for entry in edited if entry.label == label(what, way)).edit.terms[0] for way in WAYS]
        assert len({(term.keys, term.queries, term.layers, term.relation) for term in terms}) == 1
        assert [(term.site.value, float(term.value), term.renormalise) for term in terms] == [
            ("logits", float("-inf"), False),
            ("weights", 0.0, True),
            ("weights", 0.0, False),
        ]


def test_every_edit_and_way_has_its_own_controls():
    _, *drawn = study.at_random(CONFIG, MODEL)
    budgets = {entry.budget for entry in study.conditions(CONFIG, MODEL)} - {None}
    assert {budget: sum(entry.budget == budget for entry in drawn) for budget in budgets} == dict.fromkeys(budgets, 20)
    assert len({(entry.budget, entry.edit.terms[0].keys, entry.edit.terms[0].queries) for entry in drawn}) == len(drawn)
    for entry in drawn:
        (term,), (place,) = entry.edit.terms, entry.at
        if entry.budget.startswith(MASKED):
            assert (place, 0 in term.keys, max(term.keys) < CONFIG.length - 1) == (1, False, True)
        else:
            assert term.queries == (place,)
            assert len(set(range(place + 1)) - set(term.keys)) == 1
            assert place in term.keys


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
