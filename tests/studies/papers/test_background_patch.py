"""background/patch: what is put there is what the donor run has there, and each claim needs every part of its rule."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax import Capture, Probe, Site
from sinkjax.errors import SinkjaxError
from sinkjax.studies.papers.background import patch
from sinkjax.studies.papers.background.patch import DONOR, KEYS, RESID, SITES, STUDY, VALUES, Patch, everywhere, single
from sinkjax.studies.results import Results
from sinkjax.studies.specs import CONTROLS, SWEEP, specs, stand_ins
from sinkjax.studies.study import NO_EDIT
from tests.studies.planted import PROMPTS, Planted, row

CONFIG = Patch(length=10, prompts=2, control_prompts=2, controls=3)
SEEN = Probe(capture=tuple(Capture(Site(site), name=f"seen_{site}") for site in SITES))


@pytest.fixture(scope="module")
def model(tiny_config, tiny_params):
    return SimpleNamespace(config=tiny_config, params=tiny_params)


@pytest.fixture(scope="module")
def batch():
    return SimpleNamespace(tokens=np.random.default_rng(0).integers(0, 61, (2, 10)), lengths=np.array([10, 10]))


def test_positions_get_what_the_donor_run_has_there(model, batch):
    def forward(edit: sinkjax.Edit) -> dict:
        return sinkjax.forward(model.params, batch.tokens, model.config, edit, SEEN, batch.lengths).record

    assert STUDY.values is not None
    main, positions = STUDY.values, STUDY.more(CONFIG, model.config)[0]
    made = list(patch.conditions(CONFIG, model.config, main.compute(CONFIG, model, batch)))
    made += list(positions.conditions(CONFIG, model.config, positions.values.compute(CONFIG, model, batch)))
    edits = {condition.label: condition.edit for condition in made}
    donor, plain = forward(sinkjax.mask_key(0)), forward(sinkjax.compose())
    for site in SITES:
        name = f"seen_{site}"
        seen = forward(edits[single(site, 1)])[name]
        np.testing.assert_array_equal(seen[:, 1, 1], donor[name][:, 1, 1])
        np.testing.assert_array_equal(seen[:, 0], plain[name][:, 0])
        seen = forward(edits[patch.of_position(site, 3)])[name]
        np.testing.assert_array_equal(seen[:, :, 3], donor[name][:, :, 3])
        np.testing.assert_array_equal(seen[:, :, :3], plain[name][:, :, :3])


def test_controls_are_as_many_as_the_prompts_of_their_store_allow(model):
    """One prompt has eight later positions; two have 64 pairs of them."""
    config, (controls,) = Patch(length=10, prompts=2, control_prompts=2, controls=20), STUDY.controls
    labels = [condition.edit.label for condition in stand_ins(controls, config, model.config, 2)]
    assert len(labels) > len(stand_ins(controls, config, model.config, 1))
    plain = {"sweep": {"config": {name: getattr(model.config, name) for name in ("layers", "width", "kv_heads", "head_dim")}}}
    stores = {
        name: xarray.Dataset({"x": (("edit", "prompt"), np.zeros((len(labels), 2)))}, {"edit": labels}, plain)
        for name in (SWEEP, CONTROLS)
    }
    assert [condition.label for condition in Results(STUDY, config, stores).conditions(CONTROLS)] == labels


def test_controls_take_a_later_position_within_each_prompt(model, batch):
    short = SimpleNamespace(tokens=batch.tokens, lengths=np.array([10, 7]))
    values = patch.values_of(sinkjax.mask_key(CONFIG.key), model, short, None)
    for donor in patch.random_values(CONFIG, model, short):
        for site in SITES:
            for prompt, length in enumerate(short.lengths):
                at = [place for place in range(10) if np.array_equal(values[site][:, prompt, place], donor[site][:, prompt])]
                assert len(at) == 1
                assert 2 <= at[0] < length


def test_controls_are_different_ones_or_all_that_there_are(model, batch):
    one = SimpleNamespace(tokens=batch.tokens[:1, :8], lengths=np.array([8]))
    config = Patch(length=8, prompts=1, control_prompts=1)
    found = patch.random_values(config, model, one)
    assert len(found) == len(patch.RANDOM_VALUES.blank(config, model.config, 1)) == 6
    assert len({donor[RESID].tobytes() for donor in found}) == 6


def test_an_edit_and_its_controls_differ_in_the_position_alone(tiny_config):
    main, controls, *_ = specs(STUDY, CONFIG, tiny_config)
    edits = {condition.budget: condition.edit for condition in main.conditions if condition.budget is not None}
    assert Counter(condition.budget for condition in controls.conditions) == dict.fromkeys(edits, CONFIG.controls)
    assert {*edits} == {(RESID, 0), *((patch.MLP, layer) for layer in range(3)), *((site, patch.ALL) for site in SITES)}
    for condition in controls.conditions:
        (control,), (own,) = condition.edit.terms, edits[condition.budget].terms
        assert (control.site, control.op, control.layers) == (own.site, own.op, own.layers)
        assert (control.queries, control.keys) == (own.queries, own.keys)


def test_places_and_configs():
    assert Patch(length=12).places == [0, 1, 2, 3, 5]
    with pytest.raises(SinkjaxError, match="key 7 of 9 positions leaves none to patch"):
        Patch(key=7, length=9)


SINKS, SIZE, _ = (measure.name for measure in patch.measures(Patch()))
ATTENTION = everywhere(patch.ATTENTION)
BASE = {
    (DONOR, SINKS): 80,
    (DONOR, SIZE): 100,
    (everywhere(RESID), SINKS): 60,
    (everywhere(RESID), SIZE): 100,
    (single(RESID, 0), SINKS): 42,
    (everywhere(KEYS), SINKS): 50,
    (everywhere(KEYS), SIZE): 8,
    (everywhere(VALUES), SINKS): 4,
    (single(patch.MLP, 2), SIZE): 52,
    (single(patch.ATTENTION, 3), SIZE): 48,
}


@pytest.mark.parametrize(
    ("change", "percentile", "verdicts"),
    [
        ({}, 100, "ssss"),
        ({}, 95, "iiii"),
        ({(single(RESID, 0), SINKS): 40}, 100, "isss"),
        ({(single(RESID, 0), SINKS): 39}, 100, "csss"),  # below half of the donor run's
        ({(single(RESID, 0), SINKS): 0, (single(RESID, 1), SINKS): 80}, 100, "csss"),  # not in the first quarter
        ({(everywhere(KEYS), SINKS): 39}, 100, "sccs"),
        ({(everywhere(RESID), SINKS): 90, (single(RESID, 0), SINKS): 44}, 100, "csss"),  # below half of the whole stream's
        ({(everywhere(VALUES), SINKS): 5.5}, 100, "siss"),  # perhaps a tenth of the whole stream's
        ({(everywhere(VALUES), SINKS): 9}, 100, "scss"),
        ({(everywhere(VALUES), SINKS): -9}, 100, "scss"),
        ({(everywhere(KEYS), SIZE): 12}, 100, "sscs"),
        ({(single(patch.MLP, 2), SIZE): 48}, 100, "sssc"),
        (
            {(single(patch.MLP, 2), SIZE): 0, (single(patch.MLP, 1), SIZE): 100},
            100,
            "sssc",
        ),  # not where it grows in the donor run
        ({(single(patch.ATTENTION, 3), SIZE): 50}, 100, "sssi"),
        ({(single(patch.ATTENTION, 0), SIZE): 52}, 100, "sssc"),  # any layer counts
        ({(DONOR, SIZE): 0.5}, 100, "ssii"),
        ({(DONOR, SINKS): 10.5}, 100, "iiii"),
    ],
)
def test_each_claim_needs_every_part_of_its_rule(change, percentile, verdicts):
    effects = BASE | change
    rows = {(label, name): row(label, name, 0.0, effect, percentile) for (label, name), effect in effects.items()}
    largest = np.ones((2, PROMPTS, 5, 3))  # edit, prompt, depth, position
    largest[1, :, 1:, 1], largest[1, :, 3:, 1] = 10, 100  # layer 2 of the donor run writes most of it
    axes = ("edit", "prompt", "depth", "position")
    store = xarray.Dataset({"resid_max": (axes, largest)}, {"edit": [NO_EDIT, DONOR]})
    planted = Planted(STUDY, architecture={"layers": 4}, rows=rows, stores={"sweep": store})
    assert [verdict[0] for verdict in planted.verdicts()] == list(verdicts)
