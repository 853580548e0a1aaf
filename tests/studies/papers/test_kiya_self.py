"""kiya/self: the grid of conditions, controls that remove as many links, and the rules of its claims at their bounds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import xarray

from sinkjax.analysis.claims import judge
from sinkjax.analysis.estimates import Absent
from sinkjax.errors import SinkjaxError
from sinkjax.studies.papers.kiya import self as study
from sinkjax.studies.papers.kiya.self import ALL, FIRST, OTHER, SINGLE, STUDY, UP_TO_SINK, SelfOnly
from sinkjax.studies.results import Results
from sinkjax.studies.specs import CONTROLS, SWEEP
from sinkjax.studies.study import CONTROL, NO_EDIT, Condition

L = 3
MODEL = SimpleNamespace(layers=L)
CONFIG = SelfOnly(positions=(1, 3), shown=3, first_layers=(2, 9), length=20, prompts=16)
SINK_FROM = 1  # layer in which the sink on key 0 forms
FIRST_SIZE, TYPICAL = 11.0, 1.0  # largest |h| without an edit, at position 0 and at most others

# what is planted for the conditions of a series: (share of heads on the position, largest |h| there, share on key 0)
CLAIMED: dict[str, tuple[float, float, float]] = {
    NO_EDIT: (0.0, 5.0, 0.8),
    SINGLE: (0.0, 5.0, 0.8),
    FIRST: (0.0, 5.0, 0.8),
    UP_TO_SINK: (0.4, 60.0, 0.3),
    ALL: (0.5, 60.0, 0.3),
    CONTROL: (0.1, 6.0, 0.7),
    OTHER: (0.2, 20.0, 0.5),
}


def store(
    conditions: list[Condition],
    prompts: int,
    planted: dict[Any, tuple[float, float, float]],
    first_size: float = FIRST_SIZE,
    typical: float = TYPICAL,
) -> xarray.Dataset:
    """Planted numbers; those of a label come before those of its budget, and these before those of its series.

    first_size, typical: of the largest |h| without an edit at position 0 and at most others; some of these have more.
    """
    heads = np.zeros((len(conditions), prompts, L, CONFIG.length))
    sizes = np.ones((len(conditions), prompts, L + 1, CONFIG.length))
    for row, condition in enumerate(conditions):
        drawn = (condition.series, condition.budget)
        share, size, first = planted.get(condition.label, planted.get(drawn, planted.get(condition.series, (0.0, 1.0, 0.0))))
        heads[row, :, SINK_FROM if condition.label == NO_EDIT else 0 :, 0] = first
        heads[row][..., list(condition.at)] = share
        if condition.label == NO_EDIT:
            sizes[row, :, 1] = [first_size, *[typical] * (CONFIG.length - 1)]
            sizes[row, :, 1, -4:] = 900
        sizes[row][:, -1, list(condition.at)] = size
    variables = {
        "sinking_heads": (("edit", "prompt", "layer", "key"), heads),
        "mean_attention": (("edit", "prompt", "layer", "key"), heads / 2),
        "resid_max": (("edit", "prompt", "depth", "position"), sizes),
    }
    coordinates = {"edit": [condition.label for condition in conditions]}
    return xarray.Dataset(variables, coordinates, {"sweep": {"config": {"layers": L}}})


def results(planted: dict[Any, tuple[float, float, float]], **unedited: float) -> Results:
    """unedited: as for `store`."""
    values = CLAIMED | planted
    sweep = store(list(study.conditions(CONFIG, MODEL, SINK_FROM)), CONFIG.prompts, values, **unedited)
    random = store(list(study.random_links(CONFIG, MODEL, SINK_FROM)), CONFIG.control_prompts, values)
    return Results(STUDY, CONFIG, {SWEEP: sweep, CONTROLS: random})


def verdicts(found: Results) -> str:
    """The verdict on each claim, by its first letter: the sink, the activation, moved, early, the cause."""
    return "".join(judge(claim, found).verdict[0] for claim in STUDY.claims(CONFIG, MODEL))


@pytest.mark.parametrize(
    ("planted", "expected"),
    [
        ({}, "sssss"),
        ({ALL: (0.26, 60.0, 0.1), OTHER: (0.1, 20.0, 0.5)}, "cssss"),  # less than half of what key 0 has, 53 %
        ({ALL: (0.5, 49.0, 0.3)}, "scsss"),  # less than 10 times the unedited size
        ({ALL: (0.5, 60.0, 0.5)}, "ssiss"),  # as many on key 0
        ({ALL: (0.5, 60.0, 0.6)}, "sscss"),
        ({UP_TO_SINK: (0.26, 60.0, 0.3)}, "ssscs"),
        ({FIRST: (0.26, 60.0, 0.3)}, "sssss"),  # the claim is on the layers up to that in which the sink forms
        ({OTHER: (0.25, 20.0, 0.5)}, "ssssi"),  # exactly half
        ({OTHER: (0.3, 20.0, 0.5)}, "ssssc"),
        ({CONTROL: (0.6, 6.0, 0.7)}, "isiis"),  # random links do more
        ({(CONTROL, ALL): (0.6, 6.0, 0.7)}, "isiss"),  # in all layers, which are no controls of the first ones
        ({(CONTROL, UP_TO_SINK): (0.6, 6.0, 0.7)}, "sssis"),
        ({CONTROL: (0.1, 90.0, 0.7)}, "sisss"),
        ({"position 1 in all layers": (0.0, 5.0, 0.8), OTHER: (0.1, 5.0, 0.8)}, "cccss"),  # one of two positions is not most
        ({NO_EDIT: (0.6, 5.0, 0.8)}, "csscs"),  # the edit takes away
        ({NO_EDIT: (0.0, 5.0, 0.0)}, "nnnns"),  # no sink to move
        ({NO_EDIT: (0.0, 5.0, 0.4)}, "sssns"),  # in no layer do most heads sink
        ({ALL: (0.0, 5.0, 0.8), OTHER: (0.0, 5.0, 0.8)}, "cccsn"),  # the query alone has no sink
    ],
)
def test_each_claim_needs_every_part_of_its_rule(planted, expected):
    assert verdicts(results(planted)) == expected


@pytest.mark.parametrize(
    ("unedited", "expected"),
    [
        ({"first_size": 10.1}, "sssss"),
        ({"first_size": 10.0}, "sisss"),  # exactly ten times
        ({"first_size": 9.9}, "snsss"),
        ({"typical": 1.09}, "sssss"),
        ({"typical": 1.2}, "snsss"),
    ],
)
def test_without_a_massive_activation_on_the_first_token_there_is_none_to_get(unedited, expected):
    assert verdicts(results({}, **unedited)) == expected


def test_conditions_are_every_position_in_each_layer_in_first_layers_and_in_all():
    none, *alone = (entry for entry in study.conditions(CONFIG, MODEL, SINK_FROM) if entry.series != OTHER)
    sets = [[layer] for layer in range(L)] + [[0, 1], [0, 1, 2], [*range(SINK_FROM + 1)]]
    assert none.edit.terms == ()
    assert none.at == CONFIG.positions
    assert [list(entry.edit.terms[0].layers) for entry in alone] == [entry for entry in sets for _ in CONFIG.positions]
    assert [entry.edit.terms[0].queries for entry in alone] == [(1,), (3,)] * len(sets)
    assert [entry.at for entry in alone] == [(1,), (3,)] * len(sets)
    names = ["layer 0", "layer 1", "layer 2", "layers 0 to 1", ALL, UP_TO_SINK]
    assert [entry.budget for entry in alone] == [budget for where in names for budget in (None, where)]  # at position 3 alone


def test_controls_remove_as_many_links_in_the_same_layers_and_are_read_at_the_shown_position():
    edited = {entry.budget: entry for entry in study.conditions(CONFIG, MODEL, SINK_FROM) if entry.budget is not None}
    drawn = list(study.random_links(CONFIG, MODEL, SINK_FROM))
    assert [entry.budget for entry in drawn] == [budget for budget in edited for _ in range(20)]
    assert len({(entry.edit.terms[0].keys, entry.edit.terms[0].queries, entry.budget) for entry in drawn}) == 120
    for entry in drawn:
        (term,), (key,) = entry.edit.terms, entry.edit.terms[0].keys
        assert list(term.layers) == list(edited[entry.budget].edit.terms[0].layers)
        assert len(term.queries) == len(set(term.queries)) == 3
        assert key < min(term.queries)
        assert key != 3
        assert max(term.queries) < CONFIG.length
        assert entry.at == (3,)


def test_at_every_position_the_query_sees_one_earlier_key_in_place_of_itself():
    drawn = [entry for entry in study.conditions(CONFIG, MODEL, SINK_FROM) if entry.series == OTHER]
    assert [entry.at for entry in drawn] == [(1,), (3,)]
    for entry in drawn:
        (term,), (place,) = entry.edit.terms, entry.at
        (seen,) = set(range(place + 1)) - set(term.keys)
        assert term.queries == (place,)
        assert seen < place
        assert term.layers is None


def test_the_query_alone_and_the_one_with_another_key_are_compared_at_the_same_positions():
    found = results({})
    sinks, labels = found.data["sinking_heads"], found.labels()
    for position, alone, other in ((1, 0.9, 0.3), (3, 0.1, 0.1)):
        (seen,) = (name for name in labels if name.startswith(f"position {position} sees"))
        sinks[labels.index(f"position {position} in {ALL}")][..., position] = alone
        sinks[labels.index(seen)][..., position] = other
    *_, cause = STUDY.claims(CONFIG, MODEL)
    judged = judge(cause, found)
    estimates = {estimate.name: estimate for estimate in judged.estimates}
    difference, (other,) = estimates["difference of the two"], [one for name, one in estimates.items() if "random other" in name]
    assert (difference.mean, difference.value.n) == (pytest.approx(30), CONFIG.prompts)  # 60 and 0
    assert other.mean == pytest.approx(20)
    assert judged.verdict == "supported"


def test_the_summary_has_a_row_for_each_condition_and_compares_at_the_same_position():
    found = results({"position 3 in layer 1": (0.0, 7.0, 0.8)})
    size = study.measures(CONFIG)[1]
    assert found.row(size, "position 3 in layer 1").effect.mean == 2
    assert found.row(size, "position 3 in layer 1").rank.controls == 20
    assert found.row(size, "position 1 in layer 1").rank is None
    assert len(found.table) == 4 * (1 + 2 * (L + 3) + 2)


def test_findings_say_whether_sinks_and_activations_come_together():
    found = {quantity.name: quantity(results({})) for quantity in STUDY.findings(CONFIG, MODEL)}
    share = "runs with |h| at least 10 times its unedited size there (%)"
    assert found[f"of these, {share}"].mean == 100
    assert found["of the other runs, those with |h| at least 10 times its unedited size there (%)"].mean == 0
    assert found["Spearman correlation of the sink and that factor over runs"].mean > 0.5


def test_the_effect_at_the_shown_position_is_ranked_among_controls_in_the_same_layers():
    found = results({(CONTROL, "layer 0"): (0.45, 5.0, 0.8), "position 1 in all layers": (0.0, 5.0, 0.8)})
    sink = study.measures(CONFIG)[0]
    for where, below in (("layer 0", 0), ("layer 1", 0), (UP_TO_SINK, 20), (ALL, 20)):
        (estimate,) = study.beyond_controls(CONFIG, where, sink)(found).estimates
        assert (estimate.rank.below, estimate.rank.controls) == (below, 20)
    assert study.beyond_controls(CONFIG, study.early, sink)(found).holds


def test_the_early_layers_are_those_up_to_the_one_in_which_the_sink_forms():
    found = results({})
    assert study.early(found) == UP_TO_SINK
    found.data["sinking_heads"][0, :, : L - 1, 0] = 0
    with pytest.raises(Absent, match="in the last layer alone"):
        study.early(found)


def test_the_papers_readout_is_reported_at_half_depth_and_in_the_layers_of_its_figures():
    found = {quantity.name: quantity(results({})).mean for quantity in STUDY.findings(CONFIG, MODEL)}
    assert {name: value for name, value in found.items() if name.startswith("attention to")} == pytest.approx(
        {
            "attention to the position at half depth, mean over heads (%) (alone in all layers, mean over positions)": 25,
            "attention to the position at half depth, mean over heads (%) (alone in layer 0, mean over positions)": 0,
            "attention to the position in layer 1, mean over heads (%) (alone in all layers, mean over positions)": 25,
            "attention to the position in layer 2, mean over heads (%) (alone in all layers, mean over positions)": 25,
        }
    )


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"positions": (0, 2)}, "positions has 0, but must lie in 1 to 55"),
        ({"positions": (56,)}, "positions has 56, but must lie in 1 to 55"),
        ({"positions": (2, 2)}, "positions must name at least one, and each of them once"),
        ({"shown": 7}, "shown must be one of positions"),
        ({"first_layers": (1,)}, "first_layers has 1"),
    ],
)
def test_a_config_that_makes_no_sense_is_refused(fields, sentence):
    with pytest.raises(SinkjaxError, match=sentence):
        SelfOnly(**fields)
