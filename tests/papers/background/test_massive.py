"""background/massive: the definition, the dims that are set, and the premise of the claims."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.papers.background import _massive as definition
from sinkjax.papers.background import massive as own
from sinkjax.study import Sweep, run
from sinkjax.study.baseline import Unedited
from sinkjax.study.folder import open_store
from sinkjax.study.registry import program
from sinkjax.study.results import architecture_of, traced
from tests.study.budget import Conditions
from tests.study.tiny import study, write_both

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
    sweep, measure = Sweep("set", {}), definition.massive_prompts(0)
    read = SimpleNamespace(data={"set": data}.__getitem__, first=lambda measure, sweep: measure.of(data)[0])
    found, text = definition.massive(sweep, 0).test(read)
    assert found is holds
    assert f"{largest:.3g}" in text
    np.testing.assert_array_equal(measure.of(data), 100.0 * holds)
    assert own.first_massive(Unedited(None, None, data)) == 1
    parts = own.share_of_prompts(measure, sweep)(read)
    np.testing.assert_array_equal(parts.contrast, [100.0 * holds] * 2)
    assert parts.whole is None  # all prompts are no measurement


@pytest.fixture
def stream(rng):
    """float[prompt, layer, dim]: dim 7 is largest after layer 1, dim 3 after layer 2."""
    found = rng.uniform(0.5, 1, (2, 3, 32)).astype(np.float32)
    found[:, 1, 7], found[:, 2, 3] = (-60, -40), 50
    return found


def edits(stream, tiny_config, **settings) -> Conditions:
    """The study with this stream, in place of a model's; the activation forms in layer 1."""
    study = program("background/massive")
    found = Conditions.__new__(Conditions)
    found.config = study.settings(length=T, prompts=2, controls=30, **settings)
    run = SimpleNamespace(model="any", data=lambda probe: {"stream": xarray.DataArray(stream[None, :, :, None])})
    found.lab = study.trace(found.config, tiny_config, values={"forms": 1}, unedited=run)
    return found


@pytest.mark.parametrize("to", ["zero", "mean"])
def test_edits_set_the_dims_as_set_residual_does(to, stream, tiny_config, tiny_params):
    study, forms = edits(stream, tiny_config), "the layer in which it forms"
    tokens = np.random.default_rng(0).integers(0, 61, (2, T))
    capture = sinkjax.Probe(capture=(sinkjax.Capture(sinkjax.Site.RESID, name="h"),))

    def assert_same(edit: sinkjax.Edit, expected: sinkjax.Edit) -> None:
        seen = [sinkjax.forward(tiny_params, tokens, tiny_config, one, capture).record["h"] for one in (edit, expected)]
        np.testing.assert_allclose(*seen, rtol=1e-5, atol=1e-5)

    overall = np.argsort(-np.abs(stream).mean(axis=0).max(axis=0))[:2].tolist()  # the largest after any layer
    assert_same(study.of("held")["all layers"].edit, sinkjax.set_residual(0, np.zeros(2), dims=overall))
    for edit, layer in ((study.of("set")[f"to {to} in {forms}"].edit, 1), (study.of(f"{to}-by-layer")["layer 2"].edit, 2)):
        dims = largest(stream, layer)
        value = stream.mean(axis=0)[layer, dims] if to == "mean" else np.zeros(2)
        assert_same(edit, sinkjax.set_residual(0, value, dims=dims, layers=layer))


def largest(stream, layer: int) -> list[int]:
    return np.argsort(-np.abs(stream).mean(axis=0)[layer])[:2].tolist()


def test_controls_spare_the_ten_largest_dims(stream, tiny_config):
    study = edits(stream, tiny_config)
    order = np.argsort(-np.abs(stream).mean(axis=0), axis=-1)[1]
    drawn = [point.edit.terms[0] for point in study.random("set", "to zero in the layer in which it forms")]
    dims = [np.flatnonzero(np.asarray(term.value)[1, 0] == 0).tolist() for term in drawn]
    assert all(len(chosen) == 2 and not set(chosen) & {*order[:10].tolist()} for chosen in dims)
    assert len({tuple(chosen) for chosen in dims}) == 30
    assert {term.layers for term in drawn} == {(1,)}
    (_, median) = study.of("median").values()
    assert sorted(np.flatnonzero(np.asarray(median.edit.terms[0].value)[1, 0] == 0)) == sorted(order[15:17])


def test_too_many_dims_are_refused(stream, tiny_config):
    with pytest.raises(sinkjax.SinkjaxError, match=r"dims 30 and 10 .* 32"):
        edits(stream, tiny_config, dims=30)


def test_statistics_of_the_hidden_state_leave_pads_out(tiny_config, tiny_params):
    tokens = np.random.default_rng(0).integers(0, 61, (2, T))
    whole = sinkjax.forward(tiny_params, tokens, tiny_config, probe=definition.STATES, lengths=[T, 7]).record
    alone = sinkjax.forward(tiny_params, tokens[1:, :7], tiny_config, probe=definition.STATES).record
    for name in ("state_largest", "state_median"):
        np.testing.assert_allclose(whole[name][1], alone[name][0], rtol=1e-5)


def test_nothing_is_claimed_of_a_model_without_massive_activations(tmp_path):
    files = write_both(tmp_path)
    small = {"controls": 2, "control_prompts": 2, "twin": False, "layer_prompts": 1}
    chosen = study("background/massive", files, **small)
    section = run.carry_out(chosen, tmp_path / "out")
    words = {verdict.name: verdict.judgement.word for verdict in section.verdicts}
    assert words.pop("exists") in {"absent", "opposite", "undecided"}
    assert set(words.values()) == {"not applicable"}
    data = open_store(tmp_path / "out" / "set.zarr")
    assert data.sizes["edit"] == 3
    assert np.isfinite(data["state_median"]).all()

    # stores of 0.3.0 keep no values; the layer in which it forms is then read from the unedited condition
    stores = {path.stem: open_store(path) for path in (tmp_path / "out").glob("*.zarr")}
    forms = stores["set"].attrs["values"]["forms"]
    for store in stores.values():
        store.attrs.pop("values", None)
    architecture = architecture_of(stores["set"])
    lab, _ = traced(program("background/massive").trace(chosen.config, architecture), stores)
    assert lab.values == {"forms": forms}
