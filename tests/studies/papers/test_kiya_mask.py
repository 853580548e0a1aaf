"""kiya/mask: which layers are early, which controls an edit has, and the rules of its claims at their bounds."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.analysis.claims import judge
from sinkjax.errors import SinkjaxError
from sinkjax.studies.papers.kiya import mask as study
from sinkjax.studies.papers.kiya.mask import STUDY, UP_TO_SINK, Mask
from sinkjax.studies.results import Results
from sinkjax.studies.specs import SWEEP, conditions_of
from sinkjax.studies.study import CONTROL, NO_EDIT, Condition

L, H = 4, 10
MODEL = SimpleNamespace(layers=L, heads=H)
CONFIG = Mask(length=24, prompts=8)

Numbers = tuple[float, float, float, float]  # shares of heads on key 0 and on key 1, largest |h| at both positions
STARTS = 0.1  # share of the heads of layer 0 that sink on key 0, whatever the layer in which most do
CLAIMED: dict[str, Numbers] = {
    NO_EDIT: (0.8, 0.0, 100.0, 5.0),
    "layer 0": (0.8, 0.4, 100.0, 5.0),
    UP_TO_SINK: (0.3, 0.4, 100.0, 5.0),
    "all layers": (0.0, 0.5, 100.0, 60.0),
}
QUIET: Numbers = (0.8, 0.0, 100.0, 5.0)


def store(
    conditions: list[Condition], planted: dict[str, Numbers], sink_from: int, prompts: int, starts: float = STARTS
) -> xarray.Dataset:
    """Planted numbers, those of a label before those of its budget and of its series; key 0 has its sink from one layer on.

    starts: share of the heads of layer 0 that sink on key 0 without an edit before that layer.
    """
    received = np.full((len(conditions), prompts, L, H, CONFIG.length), 0.01)
    sizes = np.ones((len(conditions), prompts, L + 1, CONFIG.length))
    for row, condition in enumerate(conditions):
        drawn = f"{condition.series} in {condition.budget}"
        first, second, *largest = planted.get(condition.label, planted.get(drawn, planted.get(condition.series, QUIET)))
        received[row, :, 0, : round(starts * H * (first > 0)), 0] = 0.9
        received[row, :, sink_from:, : round(first * H), 0] = 0.9
        received[row, :, :, : round(second * H), 1] = 0.9
        sizes[row, :, -1, :2] = largest
    variables = {
        "attention_received": (("edit", "prompt", "layer", "head", "key"), received),
        "resid_max": (("edit", "prompt", "depth", "position"), sizes),
        "nll": (("edit", "prompt", "position"), np.ones((len(conditions), prompts, CONFIG.length))),
    }
    return xarray.Dataset(variables, {"edit": [entry.label for entry in conditions]}, {"sweep": {"config": vars(MODEL)}})


def results(planted: dict[str, Numbers] | None = None, sink_from: int = 1, prompts: int = 8, starts: float = STARTS) -> Results:
    values = CLAIMED | (planted or {})
    stores = {SWEEP: store(list(study.conditions(CONFIG, MODEL, 1)), values, sink_from, prompts, starts)}
    for sweep in STUDY.controls:
        stores[sweep.name] = store(list(conditions_of(sweep, CONFIG, MODEL, 1)), values, sink_from, prompts)
    return Results(STUDY, CONFIG, stores)


def verdicts(found: Results) -> str:
    """By their first letters: the sink masked in all layers, the first layer, the early layers; the activation."""
    return "".join(judge(claim, found).verdict[0] for claim in STUDY.claims(CONFIG, MODEL))


@pytest.mark.parametrize(
    ("planted", "sink_from", "expected"),
    [
        ({}, 1, "ssss"),
        ({"all layers": (0.0, 0.2, 100, 60)}, 1, "csss"),  # less than half of what key 0 had, 60 %
        ({"all layers": (0.0, 0.5, 100, 40)}, 1, "sssc"),
        ({"layer 0": (0.8, 0.2, 100, 5)}, 1, "scss"),
        ({UP_TO_SINK: (0.8, 0.2, 100, 5)}, 1, "sscs"),
        ({"layer 0": (0.8, 0.3, 100, 5), UP_TO_SINK: (0.8, 0.3, 100, 5)}, 0, "sccs"),  # 30 % is less than half of 80 %
        ({NO_EDIT: (0.0, 0.0, 100, 5)}, 1, "nnns"),
        ({NO_EDIT: (0.8, 0.0, 40, 5)}, 1, "sssn"),  # key 0 has no massive activation
        ({NO_EDIT: (0.4, 0.0, 100, 5)}, 1, "ssns"),  # in no layer do most heads sink
        ({}, L - 1, "ssns"),  # there are no later layers
        ({CONTROL: (0.8, 0.6, 100, 90)}, 1, "iiii"),  # masks of other keys do more
        ({"control in all layers": (0.8, 0.6, 100, 90)}, 1, "issi"),  # in these layers
        ({"control in layer 0": (0.8, 0.6, 100, 5)}, 1, "siss"),
        ({f"control in {UP_TO_SINK}": (0.8, 0.6, 100, 5)}, 1, "ssis"),
    ],
)
def test_each_claim_needs_every_part_of_its_rule(planted, sink_from, expected):
    found = results(planted, sink_from)
    assert verdicts(found) == expected


def test_the_first_layer_alone_is_judged_where_heads_of_it_sink():
    assert verdicts(results(starts=0.0)) == "snss"


@pytest.mark.parametrize(("sink_from", "expected"), [(0, 0), (2, 2), (L, L - 1)])
def test_the_layer_in_which_the_sink_forms_is_read_from_the_unedited_run(monkeypatch, sink_from, expected):
    data = store([Condition(sinkjax.compose().named(NO_EDIT), NO_EDIT)], CLAIMED, sink_from, 8)
    monkeypatch.setattr(sinkjax, "sweep", lambda model, tokens, *args, **kwargs: data.isel(prompt=slice(len(tokens))))
    batch = SimpleNamespace(tokens=np.zeros((20, 24), int), lengths=np.full(20, 24))
    assert study.FORMS.compute(CONFIG, SimpleNamespace(config=MODEL), batch) == expected


def test_few_prompts_decide_nothing():
    assert verdicts(results(prompts=7)) == "iiii"  # not even whether there is a sink


def test_controls_differ_from_the_mask_in_the_key_alone():
    _, *edited = study.conditions(CONFIG, MODEL, 1)
    (sweep,) = STUDY.controls
    drawn = conditions_of(sweep, CONFIG, MODEL, 1)
    controlled = [entry for entry in edited if entry.budget is not None]
    assert [entry.label for entry in controlled] == ["layer 0", "all layers", UP_TO_SINK]
    assert sorted(entry.budget for entry in drawn) == sorted(entry.label for entry in controlled for _ in range(20))
    for entry in controlled:
        (mask,) = entry.edit.terms
        others = [control.edit.terms[0] for control in drawn if control.budget == entry.budget]
        assert len({term.keys for term in others}) == 20
        assert not {(0,), (1,)} & {term.keys for term in others}  # the key itself, and where its sink is read
        assert {dataclasses.replace(term, keys=mask.keys, value=None) for term in others} == {
            dataclasses.replace(mask, value=None)
        }


def test_the_short_table_has_the_first_tenth_third_and_half_of_the_layers():
    assert study.compared(results()) == [NO_EDIT, "layer 0", "layers 0 to 1", "all layers"]


def test_a_prompt_without_another_key_is_refused():
    with pytest.raises(SinkjaxError, match="length must be at least 4"):
        Mask(length=3)


def test_the_papers_readout_stands_beside_in_the_summary_and_the_findings():
    found, name = results(), "attention to key 0 at half depth, mean over heads (%)"
    assert found.table[NO_EDIT, name].value.mean == pytest.approx(80 * 0.9 + 20 * 0.01)  # layer 1, the second of four
    assert sum(name in quantity(found).name for quantity in STUDY.findings(CONFIG, MODEL)) == 4
