"""li/super-neurons: neurons are ranked, described and ablated as stated, and a planted super neuron is found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import sinkjax
from sinkjax.errors import SinkjaxError
from sinkjax.experiments.li import neurons, super_neurons
from sinkjax.experiments.li.config import SuperNeurons
from sinkjax.experiments.li.neurons import Neuron
from sinkjax.studies import run
from tests.studies.tiny import study, write_both

SHAPE = (3, 24)
PLANTED = Neuron(1, 7)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_both(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def planted(files: Path):
    """The tiny model with one neuron whose vectors are ten times as long, and that writes to dim 5 only."""
    import dataclasses

    model = sinkjax.load(str(files / "model"))
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
    gate, up = neurons.sizes(planted)
    assert neurons.largest(gate * up, 2)[0] == PLANTED
    tokens = np.random.default_rng(0).integers(1, planted.config.vocab_size, (3, 12)).astype(np.int32)
    data = neurons.survey(planted, tokens, np.full(3, 12))
    assert data["gate_norm"].values[PLANTED] == pytest.approx(gate[PLANTED])
    assert data["concentration"].values[PLANTED] == pytest.approx(1)
    assert data["fed"].values[PLANTED] == 5 == data["massive_dim"]
    assert abs(data["writes"].values[PLANTED]) == np.abs(data["writes"].values).max()


def test_cosines_and_activations_are_those_of_the_definition(planted):
    tokens = np.random.default_rng(1).integers(1, planted.config.vocab_size, (2, 9)).astype(np.int32)
    data = neurons.survey(planted, tokens, np.full(2, 9))
    sites = ("embed", "resid", "attn_out", "neuron")
    probe = sinkjax.Probe(capture=tuple(sinkjax.Capture(sinkjax.Site(site)) for site in sites))
    record = sinkjax.forward(planted.params, tokens, planted.config, probe=probe).record
    weights, layer = planted.params["layers"], 2
    state = np.asarray(record["resid"][:, layer - 1] + record["attn_out"][:, layer], np.float64)
    x = (
        state
        / np.sqrt(np.square(state).mean(-1, keepdims=True) + planted.config.norm.eps)
        * np.asarray(weights["mlp_norm"][layer])
    )
    x /= np.linalg.norm(x, axis=-1, keepdims=True)
    gate = np.asarray(weights["gate"][layer], np.float64)
    cosines = (x @ (gate / np.linalg.norm(gate, axis=0))).mean(0)
    np.testing.assert_allclose(data["cosine_first"][layer], cosines[0], atol=1e-5)
    np.testing.assert_allclose(data["cosine_others"][layer], cosines[1:].mean(0), atol=1e-5)
    active = np.abs(np.asarray(record["neuron"][:, layer])).mean(0)
    np.testing.assert_allclose(data["activation_others"][layer], active[1:].mean(0), rtol=1e-4)


def test_an_ablation_is_that_of_its_neurons_alone(planted):
    tokens = np.random.default_rng(2).integers(1, planted.config.vocab_size, (2, 9)).astype(np.int32)
    chosen = [PLANTED, Neuron(2, 0)]
    by_hand = sinkjax.compose(*(sinkjax.edit("neuron", "set", 0.0, layers=layer, dims=number) for layer, number in chosen))
    probe = sinkjax.Probe(resid_max=True)
    one, two = (
        sinkjax.forward(planted.params, tokens, planted.config, edits=edit, probe=probe).record["resid_max"]
        for edit in (super_neurons.ablate(chosen, SHAPE, "both"), by_hand)
    )
    np.testing.assert_array_equal(one, two)


def test_the_arms_are_each_neuron_and_the_largest_together():
    chosen = [Neuron(0, 3), Neuron(2, 3), Neuron(2, 9), Neuron(1, 0), Neuron(0, 5)]
    arms = super_neurons.arms(SuperNeurons(neurons=5), chosen, SHAPE)
    assert super_neurons.budgets(5) == [1, 2, 4, 5]
    assert [zeroed(arm.edit) for arm in arms[2:7]] == [{neuron} for neuron in chosen]
    assert [zeroed(arm.edit) for arm in arms[7:10]] == [set(chosen[:many]) for many in (2, 4, 5)]
    assert zeroed(arms[1].edit) == set()
    assert len({arm.edit.label for arm in arms}) == len(arms)


def test_controls_are_other_neurons_of_the_same_layers():
    chosen = [Neuron(0, 3), Neuron(2, 3), Neuron(2, 9)]
    drawn = super_neurons.controls(SuperNeurons(neurons=3, controls=20), chosen, SHAPE)
    assert [arm.budget for arm in drawn] == [1] * 20 + [2] * 20 + [3] * 20
    for arm in drawn:
        others = zeroed(arm.edit)
        assert len(others) == arm.budget
        assert not others & set(chosen)
        if arm.budget == 3:
            assert sorted(neuron.layer for neuron in others) == [0, 2, 2]


def test_a_run_finds_judges_and_draws(files, tmp_path):
    fields = {"neurons": 4, "controls": 3, "control_prompts": 2}
    section = run.carry_out(study("li/super-neurons", files, **fields), tmp_path / "out")
    assert [claim.verdict for claim in section.claims[:5]] == ["not confirmed", *["not applicable"] * 4]
    assert section.featured[0] == super_neurons.NONE
    identity = [row for row in section.rows if row.arm == super_neurons.IDENTITY]
    assert max(abs(row.effect.mean) for row in identity) < 1e-5
    assert {path.stem for path in (tmp_path / "out" / "figures").iterdir()} == {
        "neuron-norms",
        "neuron-directions",
        "massive-activation-without-neurons",
    }


def test_too_many_neurons_are_refused(tiny_config):
    with pytest.raises(SinkjaxError, match="30 neurons and as many controls do not fit a layer of 48"):
        super_neurons.jobs(SuperNeurons(neurons=30), tiny_config)


TEXTS = (
    "The river had risen in the night, and by morning the lower fields were under water as far as the mill and the road.",
    "She wrote to her brother every week, long letters about the garden and the price of coal, which he never answered.",
)


def test_on_smollm2_the_largest_neurons_make_the_massive_activation_and_others_of_their_layers_do_not(smollm2):
    """Measured on these texts: |h| at position 0 from 21,800 to 430 without them, and 21,900 without eight others."""
    config = SuperNeurons(controls=1)
    gate, up = neurons.sizes(smollm2)
    chosen, shape = neurons.largest(gate * up, config.neurons), gate.shape
    assert {Neuron(2, 90), Neuron(11, 1229), Neuron(11, 1487), Neuron(28, 678)} <= set(chosen)
    assert (gate * up >= config.extreme).sum() == 5
    tokens, lengths = sinkjax.encode(smollm2, TEXTS, bos="none", length=24)
    arms = {arm.edit.label: arm.edit for arm in super_neurons.arms(config, chosen, shape)}
    others = [arm.edit for arm in super_neurons.controls(config, chosen, shape) if arm.budget == config.neurons]

    def largest(edit: sinkjax.Edit) -> float:
        probe = sinkjax.Probe(resid_max=True)
        out = sinkjax.forward(smollm2.params, tokens, smollm2.config, edits=edit, probe=probe, lengths=lengths, logits=False)
        return float(np.asarray(out.record["resid_max"])[..., 0].max(axis=1).mean())

    identity, ablated, control = (
        largest(edit) for edit in (arms[super_neurons.IDENTITY], arms[super_neurons.together(8)], *others)
    )
    assert identity > 15_000
    assert ablated < 1_500
    assert control > 15_000
