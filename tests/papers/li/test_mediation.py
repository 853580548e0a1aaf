"""li/mediation: links get the values of another run, kinds of isolation, and what alignment foretells."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.papers.li import _ignition
from sinkjax.papers.li._links import LINKS, WINDOWS, Chain
from sinkjax.papers.li.mediation import lost
from sinkjax.study.baseline import Unedited
from sinkjax.study.measures import Measure
from sinkjax.study.registry import program
from sinkjax.study.trace import Lab
from sinkjax.study.work import Batch

STUDY = program("li/mediation")
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


CHAIN = Chain(AT, 2, 3, FORMS, 3, NEURONS, DIM)


@pytest.fixture(scope="module")
def lab(model, batch) -> Lab:
    settings = STUDY.settings(position=AT, seen=2, early=3, neurons=len(NEURONS), length=T)
    known = {"largest": NEURONS, "dim": DIM}
    return STUDY.trace(settings, model.config, unedited=Unedited(model, batch), values={"forms": FORMS}, donors=known, prompts=2)


@pytest.fixture(scope="module")
def run(model, batch, lab):
    """What a run under a condition of a sweep ("sweep: its label") has; "" without an edit."""

    def forward(name: str, edit: sinkjax.Edit | None = None) -> dict[str, np.ndarray]:
        sweep, _, label = name.partition(": ")
        edits = {point.label: point.edit for point in lab.sweeps[sweep].points()}[label] if name else edit or ()
        record = sinkjax.forward(model, batch.tokens, edits=edits, probe=SEEN, lengths=batch.lengths, logits=False).record
        return {name: np.asarray(values) for name, values in record.items()}

    return forward


APART = "isolated: kind self, window all"


def test_placeholders_have_the_shapes_of_both_runs(lab):
    blank = CHAIN.blank(lab.architecture, 2, T)
    for name in ("apart", "plain"):
        assert {link: values.shape for link, values in lab.donors[name].items()} == {
            link: one.shape for link, one in blank.items()
        }


def test_head_outputs_alone_bring_the_isolated_stream_until_the_activation_forms(run):
    plain, apart, alone = run(""), run(APART), run("alone: link variance")
    np.testing.assert_allclose(alone["at_resid"][:, : FORMS + 1, AT], apart["at_resid"][:, : FORMS + 1, AT], rtol=1e-5, atol=1e-6)
    assert np.abs(alone["at_resid"][:, FORMS + 1, AT] - apart["at_resid"][:, FORMS + 1, AT]).max() > 1e-3
    without = run("without: link variance")
    np.testing.assert_allclose(
        without["at_resid"][:, : FORMS + 1, AT], plain["at_resid"][:, : FORMS + 1, AT], rtol=1e-5, atol=1e-6
    )
    others = np.delete(np.arange(T), AT)
    assert np.array_equal(alone["at_head_out"][:, 0, others], plain["at_head_out"][:, 0, others])


@pytest.mark.parametrize("link", LINKS)
def test_a_link_has_the_values_of_the_other_run_and_the_others_are_held(run, link):
    plain, apart = run(""), run(APART)
    held = run(f"held: link {link}")
    want = {one: plain if one == link else apart for one in LINKS}
    (first, three), (second, forty) = NEURONS
    found = {
        "variance": lambda one: one["at_head_out"][:, : FORMS + 1, AT],
        "neurons": lambda one: np.stack([one["at_neuron"][:, first, AT, three], one["at_neuron"][:, second, AT, forty]]),
        "disparity": lambda one: one["at_resid"][:, FORMS:, AT, DIM],
        "keys": lambda one: one["at_key"][:, FORMS + 1 :, AT],
    }
    for one in LINKS:
        np.testing.assert_allclose(found[one](held), found[one](want[one]), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found[one](run(f"alone: link {one}")), found[one](apart), rtol=1e-5, atol=1e-6)
        assert np.abs(found[one](plain) - found[one](apart)).max() > 1e-4


def test_without_the_first_token_a_link_has_its_values_and_no_later_query_sees_key_0(run):
    apart, found = run(APART), run("without-0: put keys")
    np.testing.assert_allclose(found["at_key"][:, FORMS + 1 :, AT], apart["at_key"][:, FORMS + 1 :, AT], rtol=1e-5, atol=1e-6)
    for name in ("nothing", "isolation", "disparity", "keys"):
        seen = run(f"without-0: put {name}")["attention"]
        assert seen[..., AT + 1 :, 0].max() == 0
        assert seen[..., 1:AT, 0].min() > 0
        assert (seen[:, 0, :, AT, 0].max() == 0) == (name == "isolation")


def test_the_unedited_links_change_nothing(run, lab):
    (edit,) = lab.noops
    np.testing.assert_allclose(run("", edit)["at_resid"], run("")["at_resid"], rtol=1e-5, atol=1e-6)


def test_controls_take_the_isolated_runs_values_of_other_positions(lab, run):
    apart, sweep, rng = run(APART), lab.sweeps["alone"], np.random.default_rng(1)
    case = next(case for case in sweep.edits if case["link"] == "keys")
    for _ in range(20):
        edit = sweep.control(rng, case)
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
    plain, found = run("")["attention"], run(f"isolated: kind {kind}, window all")["attention"]
    row = found[:, :, :, AT, : AT + 1]
    assert np.flatnonzero(row.sum(axis=(0, 1, 2)) > 0).tolist() == sees
    if kind == "even":
        np.testing.assert_allclose(row, 1 / (AT + 1), rtol=1e-5)
    if kind == "all but the first":
        want = plain[:, 0, :, AT, 1 : AT + 1]
        np.testing.assert_allclose(row[:, 0, :, 1:], want / want.sum(axis=-1, keepdims=True), rtol=1e-4)


def test_windows_are_the_layers_that_they_say():
    chain = Chain(AT, 2, 3, 11, 30, NEURONS, DIM)
    layers = {window: chain.isolated("self", window).terms[0].layers for window in WINDOWS}
    ends = {window: (one[0], one[-1]) for window, one in layers.items()}
    assert ends == {
        "early": (0, 3), "middle": (4, 11), "until it forms": (0, 11), "after it forms": (12, 29), "all": (0, 29),
    }  # fmt: skip
    shallow = Chain(AT, 2, 3, 0, 2, NEURONS, DIM)
    assert all(shallow.isolated("self", window).terms[0].layers for window in WINDOWS)


def test_a_line_foretells_what_it_made_and_noise_foretells_nothing():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((16, 4, 3))
    gain, whole = _ignition.predicted(x, 2 + 3 * x).T
    np.testing.assert_allclose(gain, whole, rtol=1e-9)
    gain, whole = _ignition.predicted(x, rng.standard_normal(x.shape)).T
    assert gain.sum() / whole.sum() < 0.05
    # the line is the other half's: a slope that turns in the second half misses more than the mean does
    turned = np.concatenate([x[:8], -x[8:]])
    gain, _ = _ignition.predicted(x, turned).T
    assert gain.sum() < 0


def test_alignment_is_the_mean_cosine_of_gates_with_what_the_mlps_read(model, batch, run):
    size, aligned = _ignition.size_and_alignment(model, batch, sinkjax.compose(), AT, NEURONS)
    plain = run("")
    cosines = []
    for layer, number in NEURONS:
        state, gate = plain["read"][:, layer, AT], np.asarray(model.params["layers"]["gate"])[layer, :, number]
        cosines.append(state @ gate / np.linalg.norm(state, axis=-1) / np.linalg.norm(gate))
    np.testing.assert_allclose(aligned, np.mean(cosines, axis=0), rtol=1e-4)
    depths = np.abs(plain["at_resid"][:, :, AT]).max(axis=(1, 2))
    assert (np.exp(size) >= depths * (1 - 1e-5)).all()  # the embedding counts too


def test_what_is_lost_is_a_share_of_what_isolation_adds():
    numbers = {"isolated": 9.0, "without": 3.0}
    read = SimpleNamespace(
        edited=lambda measure, where: np.array([numbers[where]] * 3), unedited=lambda measure, where: np.ones(3)
    )
    measure = Measure("a measure", lambda data: data, unit="points", range=(0.0, 100.0))
    parts = lost(measure, "without", "isolated")(read)  # type: ignore[arg-type]
    np.testing.assert_array_equal(parts.contrast, [6, 6, 6])
    np.testing.assert_array_equal(parts.whole, [8, 8, 8])
    assert parts.range == (0.0, 100.0)


def test_every_dataset_of_ignitions_has_an_entry_for_each_token_and_key(model, batch):
    data = _ignition.ignitions(2, (6, 8), (0, 2), 2, model, batch)
    assert isinstance(data, xarray.Dataset)
    assert data["size"].dims == ("prompt", "place", "seen")
    assert np.ptp(data["plain_alignment"].values, axis=2).max() == 0  # the unedited run has no key
    assert np.ptp(data["alignment"].values, axis=2).min() > 0
