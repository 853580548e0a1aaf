"""li/mediation: links get the values of another run, kinds of isolation, and what alignment foretells."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.papers.li import _mediation as own
from sinkjax.papers.li.mediation import STUDY
from sinkjax.studies.as_yaml import from_yaml, to_yaml
from sinkjax.studies.known import Unedited
from sinkjax.studies.scope import Scope
from sinkjax.studies.study import Batch
from sinkjax.studies.vocabulary import no_edit

T, AT, FORMS, DIM, NEURONS = 12, 5, 1, 7, ((0, 3), (1, 40))
SEEN = sinkjax.Probe(
    attention=True,
    capture=(
        *(sinkjax.Capture(site, name=f"at_{site}") for site in ("head_out", "key", "neuron", "resid")),
        sinkjax.Capture("mlp_in", name="read"),
    ),
)


@pytest.fixture(scope="module")
def model(tiny_config, tiny_params):
    return sinkjax.Model(tiny_config, tiny_params, None, {})


@pytest.fixture(scope="module")
def batch():
    return Batch(np.random.default_rng(0).integers(1, 50, (2, T)), np.array([T, T]), {})


@pytest.fixture(scope="module")
def scope(model, batch):
    settings = SimpleNamespace(position=AT, seen=2, early=3, neurons=len(NEURONS), length=T)
    known = {"forms": FORMS, "largest": NEURONS, "dim": DIM}
    bare = Scope(settings, model.config, known)
    for name, edit in (("apart", own.isolated()), ("plain", no_edit())):
        known[name] = own.Known.vocabulary["links_under"].of(bare, Unedited(model, batch), edit)
        blank = own.Known.vocabulary["links_under"].facts["blank"](bare, 2)
        assert {link: values.shape for link, values in known[name].items()} == {link: one.shape for link, one in blank.items()}
    return Scope(settings, model.config, known, rng=np.random.default_rng(1))


@pytest.fixture(scope="module")
def run(model, batch, scope):
    def forward(*words):
        edits = tuple(scope.get(word) for word in words)
        record = sinkjax.forward(model, batch.tokens, edits=edits, probe=SEEN, lengths=batch.lengths, logits=False).record
        return {name: np.asarray(values) for name, values in record.items()}

    return forward


def test_head_outputs_alone_bring_the_isolated_stream_until_the_activation_forms(run):
    plain, apart, alone = run(no_edit()), run(own.isolated()), run(own.put_link("variance"))
    np.testing.assert_allclose(alone["at_resid"][:, : FORMS + 1, AT], apart["at_resid"][:, : FORMS + 1, AT], rtol=1e-5, atol=1e-6)
    assert np.abs(alone["at_resid"][:, FORMS + 1, AT] - apart["at_resid"][:, FORMS + 1, AT]).max() > 1e-3
    without = run(own.isolated(), own.put_link("variance", own.F.plain))
    np.testing.assert_allclose(
        without["at_resid"][:, : FORMS + 1, AT], plain["at_resid"][:, : FORMS + 1, AT], rtol=1e-5, atol=1e-6
    )
    others = np.delete(np.arange(T), AT)
    assert np.array_equal(alone["at_head_out"][:, 0, others], plain["at_head_out"][:, 0, others])


@pytest.mark.parametrize("link", own.LINKS)
def test_a_link_has_the_values_of_the_other_run_and_the_others_are_held(run, link):
    plain, apart = run(no_edit()), run(own.isolated())
    held = run(own.isolated(), own.put_chain(link))
    want = {one: plain if one == link else apart for one in own.LINKS}
    (first, three), (second, forty) = NEURONS
    found = {
        "variance": lambda one: one["at_head_out"][:, : FORMS + 1, AT],
        "neurons": lambda one: np.stack([one["at_neuron"][:, first, AT, three], one["at_neuron"][:, second, AT, forty]]),
        "disparity": lambda one: one["at_resid"][:, FORMS:, AT, DIM],
        "keys": lambda one: one["at_key"][:, FORMS + 1 :, AT],
    }
    for one in own.LINKS:
        np.testing.assert_allclose(found[one](held), found[one](want[one]), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found[one](run(own.put_link(one))), found[one](apart), rtol=1e-5, atol=1e-6)
        assert np.abs(found[one](plain) - found[one](apart)).max() > 1e-4


def test_the_unedited_links_change_nothing(run):
    plain, same = run(no_edit()), run(own.put_chain("keys", own.F.plain, own.F.plain))
    np.testing.assert_allclose(same["at_resid"], plain["at_resid"], rtol=1e-5, atol=1e-6)


def test_controls_take_the_isolated_runs_values_of_other_positions(scope, run):
    apart = run(own.isolated())
    for _ in range(20):
        edit = scope.get(own.put_link("keys", random=True))
        spots = [int(word) for word in edit.label.removeprefix("keys of positions ").split(", ")]
        assert not {0, AT} & {*spots}
        (term,) = edit.terms
        for prompt, spot in enumerate(spots):
            np.testing.assert_array_equal(term.value[:, prompt], apart["at_key"][prompt, :, spot])


@pytest.mark.parametrize(
    ("kind", "sees"),
    [("self", [5]), ("one other key", [2]), ("even", [0, 1, 2, 3, 4, 5]), ("all but the first", [1, 2, 3, 4, 5])],
)
def test_an_isolated_token_sees_what_its_kind_says(run, kind, sees):
    plain, found = run(no_edit())["attention"], run(own.isolated(kind))["attention"]
    row = found[:, :, :, AT, : AT + 1]
    assert np.flatnonzero(row.sum(axis=(0, 1, 2)) > 0).tolist() == sees
    if kind == "even":
        np.testing.assert_allclose(row, 1 / (AT + 1), rtol=1e-5)
    if kind == "all but the first":
        want = plain[:, 0, :, AT, 1 : AT + 1]
        np.testing.assert_allclose(row[:, 0, :, 1:], want / want.sum(axis=-1, keepdims=True), rtol=1e-4)


def test_windows_are_the_layers_that_they_say():
    settings = SimpleNamespace(position=AT, seen=2, early=3)
    scope = Scope(settings, SimpleNamespace(layers=30), {"forms": 11})
    layers = {window: scope.get(own.isolated("self", window)).terms[0].layers for window in own.WINDOWS}
    ends = {window: (one[0], one[-1]) for window, one in layers.items()}
    assert ends == {
        "early": (0, 3), "middle": (4, 11), "until it forms": (0, 11), "after it forms": (12, 29), "all": (0, 29),
    }  # fmt: skip
    shallow = Scope(settings, SimpleNamespace(layers=2), {"forms": 0})
    assert all(shallow.get(own.isolated("self", window)).terms[0].layers for window in own.WINDOWS)


def test_a_line_foretells_what_it_made_and_noise_foretells_nothing():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((16, 4, 3))
    gain, whole = own.predicted(x, 2 + 3 * x).T
    np.testing.assert_allclose(gain, whole, rtol=1e-9)
    gain, whole = own.predicted(x, rng.standard_normal(x.shape)).T
    assert gain.sum() / whole.sum() < 0.05
    # the line is the other half's: a slope that turns in the second half misses more than the mean does
    turned = np.concatenate([x[:8], -x[8:]])
    gain, _ = own.predicted(x, turned).T
    assert gain.sum() < 0


def test_alignment_is_the_mean_cosine_of_gates_with_what_the_mlps_read(model, batch, run):
    size, aligned = own._at(model, batch, sinkjax.compose(), AT, NEURONS)
    plain = run(no_edit())
    cosines = []
    for layer, number in NEURONS:
        state, gate = plain["read"][:, layer, AT], np.asarray(model.params["layers"]["gate"])[layer, :, number]
        cosines.append(state @ gate / np.linalg.norm(state, axis=-1) / np.linalg.norm(gate))
    np.testing.assert_allclose(aligned, np.mean(cosines, axis=0), rtol=1e-4)
    depths = np.abs(plain["at_resid"][:, :, AT]).max(axis=(1, 2))
    assert (np.exp(size) >= depths * (1 - 1e-5)).all()  # the embedding counts too


def test_what_is_lost_is_a_share_of_what_isolation_adds():
    numbers = {"isolated": [1.0, 9.0], "without": [1.0, 3.0]}

    def edited(measure, where, edited=True):
        return np.array([numbers[where][edited]] * 3)

    measure = SimpleNamespace(meaning=SimpleNamespace(facts={"range": (0.0, 100.0), "unit": "points"}))
    read = SimpleNamespace(edited=edited, name=lambda *_: "a measure")
    parts = own.Contrast.vocabulary["lost"].of(read, measure, "without", "isolated")
    np.testing.assert_array_equal(parts.contrast, [6, 6, 6])
    np.testing.assert_array_equal(parts.whole, [8, 8, 8])
    assert (parts.range, parts.whole_range) == ((0.0, 100.0), (-100.0, 100.0))


def test_yaml_keeps_it():
    assert from_yaml(to_yaml(STUDY)) == STUDY


def test_every_dataset_of_ignitions_has_an_entry_for_each_token_and_key(model, batch):
    settings = SimpleNamespace(control_prompts=2, places=(6, 8), keys=(0, 2), neurons=2, length=T, seed=0)
    data = own.Computation.vocabulary["ignitions"].of(Scope(settings, model.config), model, batch, (6, 8), (0, 2), 2)
    assert isinstance(data, xarray.Dataset)
    assert data["size"].dims == ("prompt", "place", "seen")
    assert np.ptp(data["plain_alignment"].values, axis=2).max() == 0  # the unedited run has no key
    assert np.ptp(data["alignment"].values, axis=2).min() > 0
