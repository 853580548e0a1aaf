"""background/patch: positions get the donor run's values, and effects are shares of the donor run's."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import sinkjax
from sinkjax.errors import SinkjaxError
from sinkjax.papers.background._donors import SITES, blank, put, values_under
from sinkjax.papers.background.patch import STUDY
from sinkjax.studies import run
from sinkjax.studies.as_yaml import from_yaml, to_yaml
from sinkjax.studies.edits import placed
from sinkjax.studies.folder import open_store
from sinkjax.studies.known import Unedited
from sinkjax.studies.scope import Scope
from sinkjax.studies.study import Batch
from sinkjax.studies.vocabulary import mask_key
from tests.studies.tiny import of_any_size, study, write_both

SEEN = sinkjax.Probe(capture=tuple(sinkjax.Capture(sinkjax.Site(site), name=f"seen_{site}") for site in SITES))
SETTINGS = SimpleNamespace(key=0, length=10)


@pytest.fixture(scope="module")
def model(tiny_config, tiny_params):
    return SimpleNamespace(config=tiny_config, params=tiny_params)


@pytest.fixture(scope="module")
def batch():
    return Batch(np.random.default_rng(0).integers(0, 61, (2, 10)), np.array([10, 10]), {})


@pytest.fixture(scope="module")
def scope(model, batch):
    bare = Scope(SETTINGS, model.config)
    donor = values_under(mask_key(0)).meaning.of(bare, Unedited(model, batch), mask_key(0))
    assert {site: values.shape for site, values in donor.items()} == {
        site: values.shape for site, values in blank(bare, 2).items()
    }
    return Scope(SETTINGS, model.config, {"donor": donor}, rng=np.random.default_rng(0))


def test_positions_get_what_the_donor_run_has_there(scope, model, batch):
    def forward(edit: sinkjax.Edit) -> dict:
        return sinkjax.forward(model.params, batch.tokens, model.config, edit, SEEN, batch.lengths).record

    donor, plain = forward(sinkjax.mask_key(0)), forward(sinkjax.compose())
    for site in SITES:
        name = f"seen_{site}"
        seen = forward(placed(scope.get(put(site)), [(1, None)], model.config))[name]
        np.testing.assert_array_equal(seen[:, 1, 1], donor[name][:, 1, 1])
        np.testing.assert_array_equal(seen[:, 0], plain[name][:, 0])
        seen = forward(scope.get(put(site, 3)))[name]
        np.testing.assert_array_equal(seen[:, :, 3], donor[name][:, :, 3])
        np.testing.assert_array_equal(seen[:, :, :3], plain[name][:, :, :3])


def test_controls_take_a_later_position_of_each_prompt(scope):
    own = scope.get(put("resid"))
    for _ in range(20):
        (term,), label = scope.get(put("resid", source="random")).terms, scope.get(put("resid")).label
        assert (term.site, term.op, term.queries) == (own.terms[0].site, own.terms[0].op, own.terms[0].queries)
        for prompt in range(2):
            at = [np.array_equal(scope.known["donor"]["resid"][:, prompt, place], term.value[:, prompt]) for place in range(10)]
            assert np.flatnonzero(at).tolist() in [[place] for place in range(2, 10)]
        assert label == "resid of position 1"
    for place, source in ((10, "same"), (9, "random")):
        with pytest.raises(SinkjaxError, match=f"position {place} of prompts of 10 tokens"):
            scope.get(put("key", place, source=source))


def test_controls_keep_their_labels_where_placeholders_stand_for_donors(scope, model):
    def labels(known: dict) -> list[str]:
        here = Scope(SETTINGS, model.config, known, rng=np.random.default_rng(3))
        return [here.get(put("value", source="random")).label for _ in range(5)]

    assert labels(dict(scope.known)) == labels({"donor": blank(scope, 2)})


def test_a_run_judges_shares_of_the_donors_effect(tmp_path):
    files = write_both(tmp_path)
    small = {"controls": 2, "control_prompts": 2, "twin": False, "places": [1, 3]}
    with of_any_size():
        section = run.carry_out(study("background/patch", files, **small), tmp_path / "out")
    found = {verdict.name: verdict.judgement for verdict in section.verdicts}
    assert {judgement.word for judgement in found.values()} <= {
        "replicates", "weaker", "shown", "differs", "undecided", "untested",
    }  # fmt: skip
    data = {name: open_store(tmp_path / "out" / f"{name}.zarr") for name in ("donor", "patched", "patched-controls")}
    sizes = {name: np.log(one["resid_max"].values[..., 1].max(axis=-1)) for name, one in data.items()}
    labels = [str(label) for label in data["patched"]["edit"].values]
    row = labels.index("site mlp_out in the layer in which it grows")
    drawn = [number for number, label in enumerate(data["patched-controls"]["edit"].values) if f"of {labels[row]}" in str(label)]
    assert len(drawn) == 2
    expected = sizes["patched"][row, :2] - sizes["patched-controls"][drawn].mean(axis=0)
    assert found["mlp"].D.mean == pytest.approx(expected.mean(), abs=1e-5)
    assert found["mlp"].W.mean == pytest.approx((sizes["donor"][1] - sizes["donor"][0])[:2].mean(), abs=1e-5)
    grown = data["donor"]["resid_max"].values[1, :2, :, 1].mean(axis=0)
    single = labels.index(f"site mlp_out in layer {int(np.diff(grown).argmax())}")
    np.testing.assert_array_equal(data["patched"]["resid_max"].values[row], data["patched"]["resid_max"].values[single])
    assert from_yaml(to_yaml(STUDY)) == STUDY
