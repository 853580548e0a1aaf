"""li/super-neurons: neurons are ranked, described and set to 0 as stated."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import sinkjax
from sinkjax.errors import SinkjaxError
from sinkjax.model.norms import OffsetRMSNorm
from sinkjax.papers.li import _neurons, super_neurons
from sinkjax.papers.li._neurons import Neuron
from sinkjax.study.baseline import Unedited
from sinkjax.study.numbers import Stored
from sinkjax.study.registry import program
from sinkjax.study.trace import Lab
from sinkjax.study.work import Batch
from tests.study.tiny import write_both

STUDY = program("li/super-neurons")
PLANTED: Neuron = (1, 7)
CHOSEN: tuple[Neuron, ...] = ((0, 3), (2, 3), (2, 9), (1, 0), (0, 5))


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory):
    """The tiny model with one neuron whose vectors are ten times as long, and that writes to dim 5 only."""
    model = sinkjax.load(str(write_both(tmp_path_factory.mktemp("tiny")) / "model"))
    layers = dict(model.params["layers"])
    for name in ("gate", "up"):
        layers[name] = layers[name].at[PLANTED[0], :, PLANTED[1]].multiply(10)
    row = np.zeros(model.config.width, np.float32)
    row[5] = 40
    layers["down"] = layers["down"].at[PLANTED].set(row)
    return dataclasses.replace(model, params={**model.params, "layers": layers})


def zeroed(edit: sinkjax.Edit) -> set[Neuron]:
    (term,) = edit.terms
    return {(int(layer), int(number)) for layer, number in np.argwhere(term.value[:, 0] == 0)}


@pytest.fixture(scope="module")
def lab(tiny_config) -> Lab:
    """With neurons that a model has as its largest."""
    settings = STUDY.settings(neurons=5, length=12)
    return STUDY.trace(settings, tiny_config, unedited=Unedited(None, None), donors={"largest": CHOSEN})


def test_a_planted_neuron_is_the_largest_feeds_the_massive_dim_and_is_compared(planted):
    tokens = np.random.default_rng(0).integers(1, planted.config.vocab_size, (3, 12)).astype(np.int32)
    settings = STUDY.settings(neurons=1, controls=4)
    lab = STUDY.trace(settings, planted.config)
    work = lab.calculations["neurons"]
    data = work.compute(planted, Batch(tokens, np.full(3, 12), {}))
    assert data.attrs["neurons"] == [list(PLANTED)]
    assert set(data.data_vars) == set(work.variables)
    gate, up = _neurons.sizes(planted)
    read: Any = Stored(settings, planted.config, {"neurons": data})  # type: ignore[arg-type]
    found = {row.measure: row.value.mean for row in super_neurons.of_each(read, work, *super_neurons.COLUMNS)}
    assert found["size (medians of its layer)"] == pytest.approx((gate * up)[PLANTED])
    assert found["squared norm of W_down row in one dim (%)"] == pytest.approx(100)
    assert found["the dim that it feeds most"] == 5
    assert data["massive_dim"].values.tolist() == [5] * 3
    claims: Any = {name: claim.of for name, claim in lab.claims.items()}
    (share,) = claims["feeds"](read)
    assert share.value.mean == pytest.approx(100)
    assert (share.rank.below, share.rank.controls) == (4, 4)
    cosine = claims["gates"](read)
    np.testing.assert_allclose(cosine.contrast, (data["own_first"] - data["own_others"])[:, 0])
    np.testing.assert_allclose(cosine.controls[1], (data["own_first"] - data["own_others"])[:, 2])


def test_cosines_are_those_of_the_definition(planted, monkeypatch):
    tokens = np.random.default_rng(1).integers(1, planted.config.vocab_size, (2, 9)).astype(np.int32)
    monkeypatch.setattr(_neurons, "BLOCK", 1)
    data = _neurons.survey(planted, Batch(tokens, np.full(2, 9), {}), [(2, 3), PLANTED])
    probe = sinkjax.Probe(capture=tuple(sinkjax.Capture(site) for site in ("resid", "attn_out")))
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


def test_the_conditions_are_each_neuron_and_the_largest_together(lab):
    single, together, part = ([*lab.sweeps[name].edits.values()] for name in ("single", "together", "part"))
    assert [zeroed(edit) for edit in single] == [{neuron} for neuron in CHOSEN]
    assert [zeroed(edit) for edit in together] == [set(CHOSEN[:many]) for many in (2, 4, 5)]
    first, later = part
    assert zeroed(first) == zeroed(later) == set(CHOSEN)
    assert first.terms[0].queries == (0,)
    assert single[3].terms[0].layers == (1,)
    assert [zeroed(edit) for edit in lab.noops] == [set()]


def test_placeholders_give_the_same_labels(lab):
    planned = STUDY.trace(lab.settings, lab.architecture)
    for name, sweep in lab.sweeps.items():
        assert [point.label for point in planned.sweeps[name].points()] == [point.label for point in sweep.points()]


def test_controls_are_other_neurons_of_the_same_layers(lab):
    sweep, rng = lab.sweeps["together"], np.random.default_rng(0)
    case = next(case for case in sweep.edits if case["count"] == 4)
    for _ in range(20):
        others = zeroed(sweep.control(rng, case))
        assert not others & set(CHOSEN)
        assert sorted(layer for layer, _ in others) == [0, 1, 2, 2]


def test_too_many_neurons_are_refused(tiny_config):
    with pytest.raises(SinkjaxError, match=r"40 neurons .* 48"):
        STUDY.trace(STUDY.settings(neurons=40), tiny_config)


@pytest.fixture(scope="module")
def offset(planted):
    """The same function of tokens with gains stored as 1 less, as Gemma's are."""
    gains = {name: planted.params["layers"][name] - 1 for name in ("attn_norm", "mlp_norm")}
    params = {**planted.params, "layers": {**planted.params["layers"], **gains}, "final_norm": planted.params["final_norm"] - 1}
    config = dataclasses.replace(planted.config, norm=OffsetRMSNorm(planted.config.norm.eps))
    return dataclasses.replace(planted, params=params, config=config)


def test_norms_around_1_give_the_same_numbers(planted, offset):
    tokens = np.random.default_rng(2).integers(1, planted.config.vocab_size, (2, 9)).astype(np.int32)
    one, other = (_neurons.survey(model, Batch(tokens, np.full(2, 9), {}), [PLANTED]) for model in (planted, offset))
    for name in one:
        np.testing.assert_allclose(other[name], one[name], atol=1e-5, err_msg=name)


def test_a_norm_of_the_output_counts_in_what_neurons_feed(offset):
    config, layers = dataclasses.replace(offset.config, norm_place="sandwich"), dict(offset.params["layers"])
    stored = np.random.default_rng(3).standard_normal((config.layers, config.width)).astype(np.float32)
    layers |= {"mlp_out_norm": jnp.asarray(stored), "attn_out_norm": jnp.zeros_like(stored)}
    model = dataclasses.replace(offset, params={**offset.params, "layers": layers}, config=config)
    tokens = np.random.default_rng(4).integers(1, config.vocab_size, (2, 9)).astype(np.int32)
    data = _neurons.survey(model, Batch(tokens, np.full(2, 9), {}), [PLANTED])
    squares = np.square(np.asarray(layers["down"], np.float64) * (1 + stored)[:, None])
    np.testing.assert_allclose(data["concentration"], squares.max(-1) / squares.sum(-1), rtol=1e-5)
    np.testing.assert_array_equal(data["fed"], squares.argmax(-1))
    np.testing.assert_allclose(data["own_share"][:, 0], data["massive_dim"] == 5)  # the planted row has one dim
