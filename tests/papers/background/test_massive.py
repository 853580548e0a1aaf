"""background/massive: the definition, the dims that are set, and the premise of the claims."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.papers.background import _massive as own
from sinkjax.papers.background.massive import STUDY
from sinkjax.studies import run
from sinkjax.studies.as_yaml import from_yaml, to_yaml
from sinkjax.studies.edits import placed
from sinkjax.studies.folder import open_store
from sinkjax.studies.known import Unedited
from sinkjax.studies.readings import Readings
from sinkjax.studies.scope import Scope
from tests.studies.tiny import study, write_both

T = 10
DIMS = ("edit", "prompt", "depth", "position")


def sizes(largest: float, median: float = 0.5) -> xarray.Dataset:
    """Two prompts, three layers, four positions; position 0 is large after layers 1 and 2."""
    found = np.ones((1, 2, 4, 4))
    found[:, :, 2:, 0] = largest
    top = np.sort(found, axis=-1)[..., ::-1]
    middle = np.full((1, 2, 4), median)
    return xarray.Dataset(
        {"resid_max": (DIMS, found), "state_largest": ((*DIMS[:3], "rank"), top), "state_median": (DIMS[:3], middle)}
    )


@pytest.mark.parametrize(
    ("largest", "median", "holds"), [(600, 0.5, True), (400, 0.5, False), (90, 0.01, False), (101, 0.1, True)]
)
def test_the_definition_needs_both_cut_offs(largest, median, holds):
    data = sizes(largest, median)
    read = Readings(Scope(SimpleNamespace(position=0), SimpleNamespace(layers=3)), {"set": data}, {})
    found, text = own.massive("set", 0).meaning.of(read, "set", 0)
    assert found is holds
    assert f"{largest:.3g}" in text
    np.testing.assert_array_equal(own.massive_prompts(0).meaning.of(data, 0), 100.0 * holds)
    layer = own.first_massive().meaning.of(read.scope, Unedited(None, None, data))
    assert layer == 1
    parts = own.share_of_prompts(own.massive_prompts(0), "set").meaning.of(read, own.massive_prompts(0), "set")
    np.testing.assert_array_equal(parts.contrast / parts.whole, [holds, holds])


@pytest.fixture
def stream(rng):
    """float[prompt, layer, dim]: dim 7 is largest after layer 1, dim 3 after layer 2."""
    found = rng.uniform(0.5, 1, (2, 3, 32)).astype(np.float32)
    found[:, 1, 7], found[:, 2, 3] = (-60, -40), 50
    return found


def changed(edit, layers, tiny_config, tiny_params):
    tokens = np.random.default_rng(0).integers(0, 61, (2, T))
    capture = sinkjax.Probe(capture=(sinkjax.Capture(sinkjax.Site.RESID, name="h"),))
    edit = placed(edit, [(layer, None) for layer in layers], tiny_config)
    return np.asarray(sinkjax.forward(tiny_params, tokens, tiny_config, edit, capture).record["h"])


@pytest.mark.parametrize("to", ["zero", "mean"])
def test_edits_set_the_dims_as_set_residual_does(to, stream, tiny_config, tiny_params):
    scope = Scope(SimpleNamespace(position=0, dims=2), tiny_config, {"stream": stream})
    order = np.argsort(-np.abs(stream).mean(axis=0), axis=-1)
    for as_after, layers in ((1, (1,)), (1, (1, 2)), (None, (2,))):
        edit = scope.get(own.set_dims(to, as_after=as_after))
        here = layers[0] if as_after is None else as_after
        dims = order[here, :2]
        value = stream.mean(axis=0)[here, dims] if to == "mean" else np.zeros(2)
        if to == "mean" and len(layers) > 1:
            continue  # each later layer has its own mean
        expected = sinkjax.set_residual(0, value, dims=dims.tolist())
        np.testing.assert_allclose(
            changed(edit, layers, tiny_config, tiny_params),
            changed(expected, layers, tiny_config, tiny_params),
            rtol=1e-5,
            atol=1e-5,
        )


def test_controls_spare_the_ten_largest_dims(stream, tiny_config):
    scope = Scope(SimpleNamespace(position=0, dims=2), tiny_config, {"stream": stream}, rng=np.random.default_rng(0))
    order = np.argsort(-np.abs(stream).mean(axis=0), axis=-1)[1]
    drawn = [scope.get(own.set_dims("zero", "random", 1)).terms[0].value for _ in range(30)]
    dims = [np.flatnonzero(np.asarray(value)[1, 0] == 0).tolist() for value in drawn]
    assert all(len(chosen) == 2 and not set(chosen) & {*order[:10].tolist()} for chosen in dims)
    assert len({tuple(chosen) for chosen in dims}) > 20
    median = np.flatnonzero(np.asarray(scope.get(own.set_dims("zero", "median", 1)).terms[0].value)[1, 0] == 0)
    assert sorted(median) == sorted(order[15:17])


def test_too_many_dims_are_refused(stream, tiny_config):
    scope = Scope(SimpleNamespace(position=0, dims=30), tiny_config, {"stream": stream})
    with pytest.raises(sinkjax.SinkjaxError, match="dims 30 and 10 more for the controls are more than the model's 32"):
        scope.get(own.set_dims("zero"))


def test_statistics_of_the_hidden_state_leave_pads_out(tiny_config, tiny_params):
    tokens = np.random.default_rng(0).integers(0, 61, (2, T))
    whole = sinkjax.forward(tiny_params, tokens, tiny_config, probe=own.states(), lengths=[T, 7]).record
    alone = sinkjax.forward(tiny_params, tokens[1:, :7], tiny_config, probe=own.states()).record
    for name in ("state_largest", "state_median"):
        np.testing.assert_allclose(whole[name][1], alone[name][0], rtol=1e-5)


def test_nothing_is_claimed_of_a_model_without_massive_activations(tmp_path):
    files = write_both(tmp_path)
    small = {"controls": 2, "control_prompts": 2, "twin": False, "layer_prompts": 1}
    section = run.carry_out(study("background/massive", files, **small), tmp_path / "out")
    words = {verdict.name: verdict.judgement.word for verdict in section.verdicts}
    assert words.pop("exists") in {"differs", "undecided"}
    assert set(words.values()) == {"untested"}
    data = open_store(tmp_path / "out" / "set.zarr")
    assert data.sizes["edit"] == 3
    assert np.isfinite(data["state_median"]).all()
    assert from_yaml(to_yaml(STUDY)) == STUDY
