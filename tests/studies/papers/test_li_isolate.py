"""li/isolate: which keys the token sees under each condition, controls that take as many away, and the rules at their bounds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import xarray

import sinkjax
import sinkjax.studies as st
from sinkjax.errors import SinkjaxError
from sinkjax.studies.papers.li import isolate
from sinkjax.studies.papers.li.isolate import ALL, EVEN, FIRST, OTHER, SAME, SINGLE, STUDY, Isolate
from sinkjax.studies.specs import CONTROLS, content
from sinkjax.studies.study import NO_EDIT
from tests.studies.planted import SPREAD, Planted, row

K, L = 5, 3
CONFIG = Isolate(position=K, length=12, controls=20)
MODEL = SimpleNamespace(layers=L)
EVENLY = f"{EVEN}, {ALL}"


def seen(edit: sinkjax.Edit) -> dict[int, list[int]]:
    """Layer -> keys that the token sees, of the layers in which some are hidden."""
    hidden = {layer: term.keys for term in edit.terms for layer in (range(L) if term.layers is None else term.layers)}
    assert {(term.queries, term.op, term.value) for term in edit.terms} == {((K,), "set", -np.inf)}
    return {layer: [key for key in range(K + 1) if key not in keys] for layer, keys in sorted(hidden.items())}


def test_the_conditions_are_each_layer_the_first_ones_all_and_their_opposites():
    found = list(isolate.conditions(CONFIG, SimpleNamespace(layers=10)))
    series = [entry.series for entry in found]
    assert series[:2] == [NO_EDIT, SAME]
    assert series.count(SINGLE) == 10
    assert [entry.x for entry in found if entry.series == FIRST] == [1, 2, 3, 5, 7]
    assert [entry.x for entry in found if entry.series == OTHER] == [0, K // 2, K - 1]
    assert {entry.budget for entry in found if entry.series == SINGLE} == {1}
    assert {entry.label: entry.budget for entry in found}[ALL] == 10


def test_isolation_is_of_the_token_in_its_layers_and_the_opposites_are_of_all_layers():
    edits = {entry.label: entry.edit for entry in isolate.conditions(CONFIG, MODEL)}
    (alone,) = edits["layer 1"].terms
    assert (alone.queries, alone.layers, alone.relation) == ((K,), (1,), sinkjax.attend_self(K).terms[0].relation)
    assert seen(edits[f"key 2 alone, {ALL}"]) == {layer: [2] for layer in range(L)}
    (even,) = edits[EVENLY].terms
    assert (even.op, even.value, even.queries, even.layers) == ("set", 0.0, (K,), None)
    (same,) = edits[SAME].terms
    assert (same.op, same.value) == ("add", 0.0)


def test_every_control_sees_one_other_key_in_its_layers():
    (sweep,) = STUDY.controls
    drawn = list(sweep.conditions(CONFIG, MODEL))
    assert [entry.budget for entry in drawn] == [1] * K * L + [L] * 20  # all that there are of one layer and one key
    assert len({content(entry.edit) for entry in drawn}) == len(drawn)
    for entry in drawn:
        keys = seen(entry.edit)
        assert len(keys) == entry.budget
        assert all(len(found) == 1 and K not in found for found in keys.values())
        assert len(entry.edit.terms) == (1 if entry.budget == 1 else 2)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [({"position": 0}, "at least 1"), ({"position": 63}, "the last of 64"), ({"position": 64}, "below length")],
)
def test_a_position_without_earlier_or_later_tokens_is_refused(fields, sentence):
    with pytest.raises(SinkjaxError, match=sentence):
        Isolate(**fields)


def verdicts(
    sinks: float = 45,
    first: float = 80,
    size: float = 520,
    even: float = 20,
    other: float = 30,
    percentile: float = 100,
    typical: float = 80,
) -> list[str]:
    """The verdicts on planted sinks and largest |h| of the isolated token, and effects of even attention and of the controls.

    typical: the largest |h| at a typical other position without an edit, where position 0 has 900.
    """
    on_token, on_first, at_token, at_first, _ = isolate.measures(CONFIG)
    values = {
        (NO_EDIT, on_first): (first, 0),
        (NO_EDIT, at_token): (40, 0),
        (NO_EDIT, at_first): (900, 0),
        (NO_EDIT, st.largest_typical()): (typical, 0),
        (ALL, on_token): (sinks, sinks),
        (ALL, at_token): (size, size - 40),
        (EVENLY, on_token): (even, even),
    }
    rows = {(at, measure.name): row(at, measure.name, *map(float, entry), percentile) for (at, measure), entry in values.items()}
    labels = [entry.label for entry in STUDY.controls[0].conditions(CONFIG, MODEL)]
    stores = {CONTROLS: xarray.Dataset(coords={"edit": labels})}
    results: Any = Planted(STUDY, CONFIG, {"layers": L}, rows, stores)
    random = np.zeros((len(labels), 8))
    random[-20:] = other + 2 * SPREAD  # those of all layers
    results._values = {(on_token.name, CONTROLS): random, (on_token.name, "sweep"): np.zeros((1, 8))}
    return results.verdicts()


def test_a_token_that_passes_every_bound_is_a_sink_because_it_averages_nothing():
    assert verdicts() == ["supported"] * 4


@pytest.mark.parametrize(
    ("planted", "claim", "verdict"),
    [
        ({"sinks": 40.4}, 0, "inconclusive"),
        ({"sinks": 40.6}, 0, "supported"),
        ({"sinks": 30}, 0, "contradicted"),
        ({"sinks": 30, "first": -0.5}, 0, "not applicable"),
        ({"even": 22.4}, 1, "inconclusive"),
        ({"even": 30}, 1, "contradicted"),
        ({"other": 24.5}, 1, "supported"),
        ({"other": 23}, 1, "inconclusive"),
        ({"other": 10}, 1, "contradicted"),
        ({"sinks": -0.5}, 1, "not applicable"),
        ({"percentile": 95}, 2, "inconclusive"),
        ({"percentile": 0}, 2, "contradicted"),
        ({"sinks": 1.5}, 2, "inconclusive"),
        ({"sinks": -0.5}, 2, "not applicable"),
        ({"size": 460}, 3, "supported"),
        ({"size": 450}, 3, "inconclusive"),
        ({"size": 400}, 3, "contradicted"),  # not half of what position 0 has
        ({"size": 41}, 3, "contradicted"),
        ({"typical": 89}, 3, "supported"),
        ({"typical": 89.2}, 3, "inconclusive"),
        ({"typical": 91.2}, 3, "not applicable"),  # key 0 has no massive activation
    ],
)
def test_each_part_of_a_rule_counts(planted, claim, verdict):
    assert verdicts(**planted)[claim] == verdict
