"""li/super-neurons: neurons are ranked, described and ablated as stated, and the rules at their bounds."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import xarray

import sinkjax
import sinkjax.studies as st
from sinkjax.analysis.summary import Row
from sinkjax.errors import SinkjaxError
from sinkjax.studies.papers.li import _neurons, super_neurons
from sinkjax.studies.papers.li.super_neurons import PARTS, SAME, STORE, STUDY, Neuron, SuperNeurons, largest, rank, together
from sinkjax.studies.specs import SWEEP, conditions_of, main_sweep, stand_ins
from sinkjax.studies.study import NO_EDIT
from tests.studies.planted import PROMPTS, Planted, around, row
from tests.studies.tiny import write_both

L, F = 3, 128  # so many that one neuron is less than a hundredth of its layer
MODEL = SimpleNamespace(layers=L, mlp_width=F)
PLANTED = Neuron(1, 7)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory):
    """The tiny model with one neuron whose vectors are ten times as long, and that writes to dim 5 only."""
    model = sinkjax.load(str(write_both(tmp_path_factory.mktemp("tiny")) / "model"))
    layers = dict(model.params["layers"])
    for name in ("gate", "up"):
        layers[name] = layers[name].at[PLANTED.layer, :, PLANTED.number].multiply(10)
    row = np.zeros(model.config.width, np.float32)
    row[5] = 40
    layers["down"] = layers["down"].at[PLANTED.layer, PLANTED.number].set(row)
    return dataclasses.replace(model, params={**model.params, "layers": layers})


def zeroed(edit: sinkjax.Edit) -> set[Neuron]:
    (term,) = edit.terms
    return {Neuron(int(layer), int(number)) for layer, number in np.argwhere(term.value[:, 0] == 0)}


def test_a_planted_neuron_is_the_largest_and_is_described(planted):
    gate, up = _neurons.sizes(planted)
    assert largest(gate * up, 2)[0] == PLANTED
    tokens = np.random.default_rng(0).integers(1, planted.config.vocab_size, (3, 12)).astype(np.int32)
    data = _neurons.survey(planted, tokens, np.full(3, 12), [PLANTED])
    assert data["gate_norm"].values[PLANTED] == pytest.approx(gate[PLANTED])
    assert data["concentration"].values[PLANTED] == pytest.approx(1)
    assert data["fed"].values[PLANTED] == 5 == data["massive_dim"]
    assert data["own_massive_dim"].values.tolist() == [5] * 3
    assert abs(data["writes"].values[PLANTED]) == np.abs(data["writes"].values).max()


def test_cosines_and_activations_are_those_of_the_definition(planted, monkeypatch):
    tokens = np.random.default_rng(1).integers(1, planted.config.vocab_size, (2, 9)).astype(np.int32)
    monkeypatch.setattr(_neurons, "BLOCK", 1)
    data = _neurons.survey(planted, tokens, np.full(2, 9), [Neuron(2, 3), PLANTED])
    sites = ("embed", "resid", "attn_out", "neuron")
    probe = sinkjax.Probe(capture=tuple(sinkjax.Capture(sinkjax.Site(site)) for site in sites))
    record = sinkjax.forward(planted.params, tokens, planted.config, probe=probe).record
    weights, layer = planted.params["layers"], 2
    state = np.asarray(record["resid"][:, layer - 1] + record["attn_out"][:, layer], np.float64)
    x = state / np.sqrt(np.square(state).mean(-1, keepdims=True) + planted.config.norm.eps)
    x *= np.asarray(weights["mlp_norm"][layer])
    x /= np.linalg.norm(x, axis=-1, keepdims=True)
    gate = np.asarray(weights["gate"][layer], np.float64)
    of_prompts = x @ (gate / np.linalg.norm(gate, axis=0))
    cosines = of_prompts.mean(0)
    np.testing.assert_allclose(data["cosine_first"][layer], cosines[0], atol=1e-5)
    np.testing.assert_allclose(data["cosine_others"][layer], cosines[1:].mean(0), atol=1e-5)
    np.testing.assert_allclose(data["own_first"][:, 0], of_prompts[:, 0, 3], atol=1e-5)
    np.testing.assert_allclose(data["own_others"][:, 0], of_prompts[:, 1:, 3].mean(1), atol=1e-5)
    np.testing.assert_allclose(data["smaller"][:, 0], (of_prompts[:, 0] < of_prompts[:, 0, 3:4]).mean(1), atol=0.01)
    active = np.abs(np.asarray(record["neuron"][:, layer])).mean(0)
    np.testing.assert_allclose(data["activation_others"][layer], active[1:].mean(0), rtol=1e-4)


def test_an_ablation_is_of_its_neurons_alone_whatever_their_layers():
    chosen = [PLANTED, Neuron(2, 0)]
    edit = super_neurons.ablate(chosen, MODEL, "both")
    (term,) = edit.terms
    assert (term.site, term.op, term.layers, term.queries) == ("neuron", "scale", (1, 2), None)
    assert zeroed(edit) == set(chosen)
    assert np.unique(term.value).tolist() == [0, 1]


def test_the_conditions_are_each_neuron_and_the_largest_together():
    chosen = [Neuron(0, 3), Neuron(2, 3), Neuron(2, 9), Neuron(1, 0), Neuron(0, 5)]
    config = SuperNeurons(neurons=5)
    found = conditions_of(main_sweep(STUDY), config, MODEL, chosen)
    assert super_neurons.budgets(config) == [1, 2, 4, 5]
    assert [entry.label for entry in found[:2]] == [NO_EDIT, SAME]
    assert zeroed(found[1].edit) == set()
    assert [zeroed(entry.edit) for entry in found[2:7]] == [{neuron} for neuron in chosen]
    assert [zeroed(entry.edit) for entry in found[7:10]] == [set(chosen[:many]) for many in (2, 4, 5)]
    assert [entry.budget for entry in found[2:]] == [1] * 5 + [2, 4, 5] + [None] * 2
    assert [zeroed(entry.edit) for entry in found[10:]] == [set(chosen)] * 2
    assert found[10].edit.terms[0].queries == (0,)
    assert len({entry.label for entry in found}) == len(found) == 12


def test_stand_ins_have_the_labels_of_the_model_s_own_neurons():
    config = SuperNeurons(neurons=4)
    blank = super_neurons.CHOSEN.blank(config, MODEL, 2)
    chosen = [Neuron(0, 3), Neuron(2, 3), Neuron(2, 9), Neuron(1, 0)]
    one, other = (conditions_of(main_sweep(STUDY), config, MODEL, values) for values in (blank, chosen))
    assert [entry.label for entry in one] == [entry.label for entry in other]


def test_controls_are_other_neurons_of_the_same_layers():
    chosen = [Neuron(0, 3), Neuron(2, 3), Neuron(2, 9)]
    drawn = conditions_of(STUDY.controls[0], SuperNeurons(neurons=3, controls=20), MODEL, chosen)
    assert [entry.budget for entry in drawn] == [1] * 20 + [2] * 20 + [3] * 20
    for entry in drawn:
        others = zeroed(entry.edit)
        assert len(others) == entry.budget
        assert not others & set(chosen)
        if entry.budget == 3:
            assert sorted(neuron.layer for neuron in others) == [0, 2, 2]


def test_too_many_neurons_are_refused():
    with pytest.raises(SinkjaxError, match="65 neurons and as many controls do not fit a layer of 128"):
        STUDY.check(SuperNeurons(neurons=65), MODEL)
    with pytest.raises(SinkjaxError, match="neurons must be at least 2"):
        SuperNeurons(neurons=1)


MANY = 8  # the fewest of which most are said something
LARGE = tuple(Neuron(place % L, place + 1) for place in range(MANY))  # of extreme norm, in falling order
ALL = together(MANY)
SUPPORT: dict[str, Any] = {"own_first": 0.3, "smaller": 0.99, "own_others": -0.1, "concentration": 0.51, "fed": 4}


def results(
    left: float = 1.0,
    rank: float = 0.0,
    some: int = PROMPTS,
    typical: float = 2.0,
    many: int = MANY,
    same: int = 3,
    **changed: Any,
) -> Planted:
    """Results that support every claim, but for what is changed of most of the large neurons.

    left: the largest |h| at position 0 without all of them, of 30. rank: its percentile among the controls. some: in how many
    prompts what is changed of prompts is so. typical: the largest |h| at a typical other position without an edit. many: how
    many neurons are of extreme norm, the last of them just so. same: of how many of them nothing is changed.
    """
    config = SuperNeurons(neurons=MANY)
    size, concentration, fed = np.ones((L, F)), np.zeros((L, F)), np.zeros((L, F))
    for place, neuron in enumerate(LARGE[:many]):
        values = SUPPORT | (changed if place >= same else {})
        size[neuron], concentration[neuron], fed[neuron] = 5 + 1e-3 * (many - 1 - place), values["concentration"], values["fed"]
    prompts = {name: np.full((PROMPTS, MANY), SUPPORT[name]) for name in ("own_first", "smaller", "own_others")}
    for name, array in prompts.items():
        array[:some, same:] = changed.get(name, SUPPORT[name])
    arrays = {name: np.ones((L, F)) for name in ("up_norm", "writes", "cosine_first", "cosine_others")}
    arrays |= {"gate_norm": size, "concentration": concentration, "fed": fed}
    looked = xarray.Dataset(
        {name: (("layer", "neuron"), array) for name, array in arrays.items()}
        | {name: (("prompt", "chosen"), array) for name, array in prompts.items()}
        | {"own_massive_dim": (("prompt",), np.full(PROMPTS, 4)), "massive_dim": ((), 4)}
    )
    (_, activation, _), other = super_neurons.measures(config), st.largest_typical()
    rows = {
        (NO_EDIT, activation.name): row(NO_EDIT, activation.name, 30),
        (NO_EDIT, other.name): Row(NO_EDIT, "planted", other.name, around(typical, 0.2)),
        (ALL, activation.name): row(ALL, activation.name, left, left - 30, rank),
    }
    labels = [entry.label for entry in stand_ins(main_sweep(STUDY), config, MODEL)]
    stores = {STORE: looked, SWEEP: xarray.Dataset(coords={"edit": labels})}
    return Planted(STUDY, config, vars(MODEL), rows, stores)


def test_numbers_at_every_bound_support_every_claim():
    assert results().verdicts() == ["supported"] * 6


@pytest.mark.parametrize(
    ("changed", "claim", "verdict"),
    [
        ({"own_first": 0.29}, 1, "contradicted"),
        ({"own_first": 0.29, "some": 4}, 1, "inconclusive"),
        ({"smaller": 0.98}, 1, "contradicted"),  # high, but not in its layer
        ({"own_others": -0.11}, 2, "contradicted"),
        ({"own_others": 0.11}, 2, "contradicted"),
        ({"own_others": 0.11, "some": 4}, 2, "inconclusive"),
        ({"concentration": 0.5}, 3, "contradicted"),
        ({"fed": 5}, 4, "contradicted"),
        ({"left": 2.0}, 5, "supported"),
        ({"left": 2.3}, 5, "inconclusive"),
        ({"left": 5.0}, 5, "contradicted"),
        ({"rank": 5.0}, 5, "inconclusive"),
    ],
)
def test_each_part_of_a_rule_counts_for_most_of_the_large_neurons(changed, claim, verdict):
    found = results(**changed).verdicts()
    assert found[claim] == verdict
    assert found.count("supported") >= 5


@pytest.mark.parametrize(
    ("changed", "claim"),
    [({"own_first": 0.29}, 1), ({"smaller": 0.98}, 1), ({"own_others": 0.11}, 2), ({"concentration": 0.5}, 3), ({"fed": 5}, 4)],
)
def test_most_are_more_than_half(changed, claim):
    """Exactly half are a verdict where the number is exact."""
    assert results(same=5, **changed).verdicts()[claim] == "supported"
    assert results(same=4, **changed).verdicts()[claim] == ("contradicted" if claim == 3 else "inconclusive")


@pytest.mark.parametrize("many", [1, MANY - 1])
def test_what_is_said_of_most_is_not_said_of_a_few(many):
    assert results(many=many).verdicts() == ["supported", *["not applicable"] * 4, "supported"]
    assert results(many=many, same=0, own_first=0.29).verdicts()[1] == "not applicable"


@pytest.mark.parametrize(
    ("typical", "verdict"), [(2.89, "supported"), (3.0, "inconclusive"), (4.0, "not applicable")], ids=["ten", "near", "seven"]
)
def test_without_a_massive_activation_there_is_none_to_feed_or_to_lose(typical, verdict):
    """At position 0 it is 29 to 31, less ten times 0.2 either way."""
    assert results(typical=typical).verdicts() == ["supported"] * 4 + [verdict] * 2


def test_a_typical_position_is_the_median_of_the_others():
    largest = np.zeros((1, 1, 2, 6))  # edit, prompt, depth, position
    largest[0, 0, 1] = [9000, 3, 1, 8000, 2, np.nan]
    assert st.largest_typical().of(xarray.Dataset({"resid_max": (("edit", "prompt", "depth", "position"), largest)})) == 2.5


def test_without_a_large_neuron_there_is_nothing_to_say_about_them():
    found = results()
    found[STORE]["gate_norm"].values[:] = 1
    assert found.verdicts() == ["contradicted", *["not applicable"] * 4, "supported"]


def test_neurons_are_named_once_the_model_is_known():
    found = results()
    assert STUDY.names(found)[rank(0)] == str(LARGE[0]) == "layer 0, neuron 1"
    described = {entry.condition for entry in STUDY.rows(found)}
    assert described == set(STUDY.names(found).values())
    assert list(STUDY.featured(found))[-2:] == [f"{ALL}, at {where}" for where in PARTS]
