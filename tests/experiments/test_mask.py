"""kiya/mask: the arms are what the study says, and on SmolLM2 the sink moves."""

from __future__ import annotations

from functools import partial

import numpy as np
import xarray

import sinkjax
from sinkjax.experiments.base import Arm
from sinkjax.experiments.kiya import mask, mask_heads
from sinkjax.experiments.kiya.config import Mask
from sinkjax.experiments.measures import largest_activation, sink_rate
from sinkjax.experiments.summary import Measured, summarise
from sinkjax.probes.record import Record

L = 5


def masked_layers(edit: sinkjax.Edit) -> list[int]:
    layers = edit.terms[0].layers
    return list(range(layers.start or 0, layers.stop)) if hasattr(layers, "start") else list(layers)


def test_the_arms_are_no_edit_each_layer_each_prefix_and_all_layers():
    arms = mask.arms(Mask(), L)
    sets = [masked_layers(arm.edit) for arm in arms[1:]]
    assert arms[0].edit.terms == ()
    assert sets == [[layer] for layer in range(L)] + [list(range(stop)) for stop in range(2, L)] + [list(range(L))]
    assert {arm.edit.terms[0].keys for arm in arms[1:]} == {(0,)}
    assert len({arm.edit.label for arm in arms}) == len(arms)


def test_controls_match_the_budget_and_never_mask_the_key_under_study():
    config = Mask(key=2, controls=30)
    drawn = mask.controls(config, L)
    assert [arm.budget for arm in drawn] == [1] * 30 + [L] * 30
    assert all(len(set(masked_layers(arm.edit))) == arm.budget for arm in drawn)
    keys = {arm.edit.terms[0].keys[0] for arm in drawn}
    assert keys <= set(range(config.length - 1)) - {2}
    assert len(keys) > 20
    more = mask.first_controls(config, L)
    assert [arm.budget for arm in more] == [count for count in mask.several(L) for _ in range(30)]
    assert all(len(set(masked_layers(arm.edit))) == arm.budget for arm in more)
    assert {arm.budget for arm in mask.arms(config, L)} == {None, 1, L, *mask.several(L)}
    assert all(len(masked_layers(arm.edit)) == arm.budget for arm in mask.arms(config, L) if arm.budget)
    labels = [arm.edit.label for arm in (*drawn, *more)]
    assert len(set(labels)) == len(labels)


def test_masks_of_first_layers_are_ranked_where_their_controls_are():
    config, budgets = Mask(controls=3), {1, L}

    def store(arms) -> xarray.Dataset:
        labels = [arm.edit.label for arm in arms]
        return xarray.Dataset({"resid_max": (("edit", "prompt"), np.zeros((len(labels), 2)))}, {"edit": labels})

    stores = {"controls": store(mask.controls(config, L))}
    assert {arm.budget for arm in mask.random_masks(config, stores, L).arms} == budgets
    stores[mask.MORE] = store(mask.first_controls(config, L))
    found = mask.random_masks(config, stores, L)
    assert {arm.budget for arm in found.arms} == budgets | set(mask.several(L))
    assert found.data.sizes["edit"] == 3 * (2 + len(mask.several(L)))


def test_controls_depend_on_the_seed_alone():
    labels = [[arm.edit.label for arm in mask.controls(Mask(seed=seed), L)] for seed in (0, 0, 1)]
    assert labels[0] == labels[1] != labels[2]


def test_a_model_of_one_layer_has_a_study_too():
    assert [arm.edit.label for arm in mask.arms(Mask(), 1)] == ["no edit", "layer 0", "all layers"]
    assert {arm.budget for arm in mask.controls(Mask(), 1)} == {1}


def masked_heads(edit: sinkjax.Edit) -> list[tuple[int, int]]:
    (term,) = edit.terms
    chosen = [(int(layer), int(head)) for layer, head in np.argwhere(term.value[:, 0] == -np.inf)]
    assert set(term.layers) == {layer for layer, _ in chosen}
    assert np.isin(term.value, (0, -np.inf)).all()
    return chosen


def test_sets_of_heads_are_those_that_sink_most_and_those_of_the_first_layers():
    received = np.zeros((4, 3))
    received[3, 1], received[1, 2], received[2, 0] = 0.9, 0.8, 0.7
    none, most, early, *larger = mask_heads.arms(Mask(head_shares=(0.5, 0.1)), received)
    assert none.edit.terms == ()
    assert masked_heads(most.edit) == [(1, 2), (2, 0), (3, 1)]
    assert masked_heads(early.edit) == [(0, 0), (0, 1), (0, 2)]
    assert [len(masked_heads(arm.edit)) for arm in larger] == [arm.budget for arm in larger] == [6, 6]


def test_as_many_random_heads_are_their_controls():
    config = Mask(controls=20)
    drawn = mask_heads.controls(config, 4, 3)
    assert {arm.budget for arm in drawn} == {arm.budget for arm in mask_heads.arms(config, np.zeros((4, 3)))} - {None}
    assert all(len(masked_heads(arm.edit)) == arm.budget for arm in drawn)
    assert len({tuple(masked_heads(arm.edit)) for arm in drawn}) > 20


def test_a_mask_of_all_heads_of_a_layer_is_the_mask_of_that_layer(tiny_config, tiny_params):
    L, H = tiny_config.layers, tiny_config.heads
    heads = mask_heads.masked(Mask(), np.arange(H), (L, H))
    tokens = np.arange(24).reshape(2, 12)
    one, other = (
        sinkjax.forward(tiny_params, tokens, tiny_config, edits=edit) for edit in (heads, sinkjax.mask_key(0, layers=0))
    )
    np.testing.assert_array_equal(one.logits, other.logits)


TEXTS = (
    "The river had risen in the night, and by morning the lower fields were under water as far as the mill and the road.",
    "She wrote to her brother every week, long letters about the garden and the price of coal, which he never answered.",
    "In the winter of that year the company bought two ships, and sent them north with orders to return before the frost.",
    "A good carpenter looks at the grain before he looks at the drawing, because the wood decides what can be made of it.",
)


def swept(model: sinkjax.Model, config: Mask, arms: list[Arm]) -> Measured:
    """The arms on the texts, one forward each."""
    tokens, lengths = sinkjax.encode(model, TEXTS, bos="none", length=config.length)
    probe = sinkjax.Probe(attention_received=True, resid_max=True)
    run = partial(sinkjax.forward, model.params, tokens, model.config, probe=probe, lengths=lengths, logits=False)
    records = [run(edits=arm.edit).record for arm in arms]
    stacked = {name: np.stack([record[name] for record in records]) for name in ("attention_received", "resid_max")}
    return Measured(sinkjax.to_dataset(Record(stacked, probe.dims()), {"edit": [arm.edit.label for arm in arms]}), arms)


def test_on_smollm2_masking_key_0_moves_the_sink_and_the_massive_activation_to_position_1(smollm2):
    """Measured on these texts: 82 % of heads on key 0 without an edit and 81 % on key 1 with it; |h| at 1 from 560 to 22,900."""
    config = Mask(prompts=len(TEXTS), length=24, controls=2)
    L = smollm2.config.layers
    chosen = {arm.edit.label: arm for arm in mask.arms(config, L)}
    controls = swept(smollm2, config, [arm for arm in mask.controls(config, L) if arm.budget == L])
    measures = (sink_rate(0, config.eps), sink_rate(1, config.eps), largest_activation(0), largest_activation(1))
    edited = swept(smollm2, config, [chosen[label] for label in ("no edit", "layers 0 to 11", "all layers")])
    table = summarise(edited, measures, 0, controls)
    on_0, on_1, at_0, at_1 = ({arm: row for (arm, name), row in table.items() if name == measure.name} for measure in measures)

    assert on_0["no edit"].value.mean > 60 > 10 > on_1["no edit"].value.mean
    assert on_1["all layers"].value.mean > 60
    assert on_0["all layers"].value.mean == 0
    assert on_1["layers 0 to 11"].effect.low > 40
    assert at_1["no edit"].value.mean < 2_000 < 10_000 < at_1["all layers"].value.mean
    assert np.isclose(at_0["all layers"].value.mean, at_0["no edit"].value.mean, rtol=1e-3)
    assert on_1["all layers"].percentile == at_1["all layers"].percentile == 100


def test_with_random_weights_of_the_same_shape_there_is_neither_sink_nor_massive_activation():
    """Measured on these texts: at most 1.9 % of heads sink on either key in any prompt, masked or not, and no |h| is above 27."""
    config = Mask(prompts=len(TEXTS), length=24)
    model = sinkjax.load("untrained:smollm2-135m")
    chosen = {arm.edit.label: arm for arm in mask.arms(config, model.config.layers)}
    found = swept(model, config, [chosen[label] for label in ("no edit", "all layers")])
    for key in (0, 1):
        assert sink_rate(key, config.eps).of(found.data).max() < 5
        assert largest_activation(key).of(found.data).max() < 100
