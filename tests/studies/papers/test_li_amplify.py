"""li/amplify: doses, controls of the size of the change that they stand beside, and the rules at their bounds."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from sinkjax.errors import SinkjaxError
from sinkjax.studies.papers.li import amplify
from sinkjax.studies.papers.li.amplify import CENTRES, DIMS, NORM, POSITIONS, SAME, STUDY, Amplify, Dose
from sinkjax.studies.study import NO_EDIT
from tests.studies.planted import Planted, row

K = 4
CONFIG = Amplify(position=K, length=9, layers=(0, 2), factors=(2.0, 5.0), factor=5.0, controls=3)
MODEL = SimpleNamespace(layers=3, heads=4, head_dim=8)


def test_the_conditions_are_every_factor_in_some_layers_and_one_factor_in_all():
    found = {entry.label: entry for entry in amplify.conditions(CONFIG, MODEL)}
    assert len(found) == 1 + 3 + 3 * (2 * 2 + 1)
    assert Dose(NORM, 1, 5.0).label in found
    assert Dose(NORM, 1, 2.0).label not in found
    budgets = {label: entry.budget for label, entry in found.items() if entry.budget is not None}
    assert budgets == {Dose(POSITIONS, layer, 5.0).label: layer for layer in (0, 2)}


@pytest.mark.parametrize("way", list(CENTRES))
def test_a_condition_scales_the_outputs_of_one_token_about_its_centre(way):
    edits = {entry.label: entry.edit for entry in amplify.conditions(CONFIG, MODEL)}
    for factor, dose in ((5.0, Dose(way, 2, 5.0)), (1.0, Dose(way, 0, 1.0))):
        (term,) = edits[dose.label].terms
        assert (term.site, term.op, term.value, term.centre) == ("head_out", "scale", factor, CENTRES[way])
        assert (term.layers, term.queries, term.heads) == ((dose.layer,), (K,), None)


def test_a_factor_of_1_changes_nothing_and_is_measured_for_each_way():
    assert [entry.edit.terms[0].value for entry in amplify.conditions(CONFIG, MODEL) if entry.series == SAME] == [1.0] * 3


def test_controls_add_a_change_of_the_same_size_to_each_head():
    changes = np.random.default_rng(0).normal(size=(2, 5, MODEL.heads, MODEL.head_dim))
    drawn = list(STUDY.controls[0].conditions(CONFIG, MODEL, changes))
    assert [entry.budget for entry in drawn] == [0] * 3 + [2] * 3
    for entry in drawn:
        (term,) = entry.edit.terms
        assert (term.site, term.op, term.layers, term.queries) == ("head_out", "add", (entry.budget,), (K,))
        wanted = np.linalg.norm(changes[CONFIG.layers.index(entry.budget)], axis=-1)
        np.testing.assert_allclose(np.linalg.norm(term.value[0], axis=-1), wanted, rtol=1e-5)
    assert not np.allclose(drawn[0].edit.terms[0].value, drawn[1].edit.terms[0].value)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"factor": 3.0}, "factors must be above 1 and hold factor"),
        ({"factors": (0.5, 10.0)}, "factors must be above 1"),
        ({"layers": ()}, "layers must name at least one, and each of them once"),
        ({"layers": (-1,)}, "negative layer -1"),
        ({"position": 63}, "the last of 64"),
    ],
)
def test_doses_that_do_not_fit_are_refused(fields, sentence):
    with pytest.raises(SinkjaxError, match=sentence):
        Amplify(**fields)


def test_a_layer_that_the_model_does_not_have_is_refused():
    with pytest.raises(SinkjaxError, match="layers has layer 9, but the model has 3, 0 to 2"):
        STUDY.check(Amplify(layers=(9,)), MODEL)


def verdicts(rates: dict[Dose, float], percentile: float = 100) -> list[str]:
    """The verdicts where key 0 has 80 % of heads and doses have these; the others have none."""
    sinks, first, *_ = amplify.measures(CONFIG)
    rows = {(NO_EDIT, first.name): row(NO_EDIT, first.name, 80)}
    rows |= {(dose.label, sinks.name): row(dose.label, sinks.name, rate, rate, percentile) for dose, rate in rates.items()}
    return Planted(STUDY, CONFIG, vars(MODEL), rows).verdicts()


def pushed(two: float, five: float, way: str = POSITIONS) -> dict[Dose, float]:
    return {Dose(way, 2, 2.0): two, Dose(way, 2, 5.0): five}


@pytest.mark.parametrize(
    ("rates", "percentile", "expected"),
    [
        (pushed(5, 41), 100, ["supported", "supported", "supported"]),
        (pushed(5, 40), 100, ["supported", "supported", "supported"]),
        (pushed(5, 39), 100, ["inconclusive", "supported", "supported"]),
        (pushed(5, 41), 99, ["inconclusive", "supported", "supported"]),  # not above every random direction
        (pushed(41, 5), 100, ["supported", "inconclusive", "supported"]),  # most of a sink at the smaller factor
        (pushed(41, 0.5), 100, ["inconclusive", "inconclusive", "supported"]),  # no effect at the matched factor
        (pushed(41, 41), 100, ["supported", "inconclusive", "supported"]),
        (pushed(5, 41, DIMS), 100, ["inconclusive", "supported", "supported"]),  # the other mean: only the growth counts
        (pushed(5, 41) | {Dose(NORM, 0, 2.0): 2}, 100, ["supported", "supported", "inconclusive"]),  # some scaling does it
        (pushed(0.5, 0.9), 100, ["inconclusive", "inconclusive", "not applicable"]),
    ],
)
def test_the_rules_at_their_bounds(rates, percentile, expected):
    assert verdicts(rates, percentile) == expected


def test_the_strongest_dose_is_found_in_the_dose_response_alone():
    sinks = amplify.measures(CONFIG)[0].name
    beside = Dose(POSITIONS, 1, 5.0)  # not a layer of the dose-response
    rows = {(dose.label, sinks): row(dose.label, sinks, rate, rate) for dose, rate in {beside: 90, **pushed(7, 3)}.items()}
    results = Planted(STUDY, CONFIG, vars(MODEL), rows)
    assert amplify.best(CONFIG, POSITIONS)(results) == Dose(POSITIONS, 2, 2.0).label
    assert amplify.best(CONFIG, POSITIONS, way=NORM)(results) == Dose(NORM, 2, 2.0).label
