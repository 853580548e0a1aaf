"""background/quantise: the error is that of rounding, and the edit is where the activation grows most."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.lab import layer
from sinkjax.lab.baseline import Baseline, Unedited
from sinkjax.lab.measures import read_measure
from sinkjax.papers.background.quantise import neuron_error, tensor_error, tensor_rounding, token_rounding
from sinkjax.probes.statistics import View
from sinkjax.studies import run
from sinkjax.studies.folder import open_store
from sinkjax.studies.registry import program
from tests.lab.edited import Conditions
from tests.studies.tiny import of_any_size, study, write_both


def test_the_error_is_what_rounding_to_255_steps_loses(rng):
    x = rng.standard_normal((2, 5, 8)).astype(np.float32)
    x[1, 4] = 1e6  # beyond the prompt's length
    view = View(np.array([5, 4]))
    for rounding, scale in (
        (tensor_rounding, np.abs(x[1, :4]).max()),
        (token_rounding, np.abs(x[1, :4]).max(axis=1, keepdims=True)),
    ):
        found = np.asarray(rounding(x, view))
        steps = np.round(x[1, :4] / scale * 127)
        assert np.abs(steps).max() == 127
        lost = np.linalg.norm(steps * scale / 127 - x[1, :4], axis=-1) / np.linalg.norm(x[1, :4], axis=-1)
        np.testing.assert_allclose(found[1, :4], lost, rtol=1e-3)
    assert not np.asarray(tensor_rounding(np.zeros((1, 2, 3), np.float32), View(np.array([2])))).any()


def test_one_massive_token_takes_the_steps_of_the_others(rng):
    x = rng.standard_normal((1, 5, 8)).astype(np.float32)
    plain = np.asarray(tensor_rounding(x, View(np.array([5]))))
    x[0, 0, 3] = 1000
    whole, rows = (np.asarray(rounding(x, View(np.array([5])))) for rounding in (tensor_rounding, token_rounding))
    assert plain.max() < 0.05
    np.testing.assert_allclose(whole[0, 1:], 1)  # all of it is rounded away
    assert rows[0, 1:].max() < 0.05


def test_the_embedding_and_the_position_itself_do_not_count():
    stream, neurons = np.zeros((1, 2, 3, 4)), np.zeros((1, 2, 2, 4))  # edit, prompt, depth or layer, position
    stream[:, :, 0], stream[..., 0] = 9, 9
    stream[:, :, 1, 1:], stream[:, :, 2, 1:] = 0.25, 0.75
    neurons[:, :, 1, 1:] = 0.5
    axes = ("edit", "prompt", "depth", "position")
    data = xarray.Dataset({"stream_error": (axes, stream), "neuron_error": ((*axes[:2], "layer", axes[3]), neurons)})
    for measure, expected in ((tensor_error(0), 50), (tensor_error(0, layers=layer(1)), 75), (neuron_error(0), 25)):
        np.testing.assert_allclose(read_measure(measure, data), expected)


def test_the_layer_is_the_one_in_which_the_activation_grows_most():
    sizes = np.ones((1, 2, 4, 3))  # the embedding, then layers 0 to 2
    sizes[:, :, :, 1] = 2, 3, 9, 10
    sizes[:, :, 3, 0] = 100
    run = Unedited(None, None, xarray.Dataset({"resid_max": (("edit", "prompt", "depth", "position"), sizes)}))
    lab = Baseline(SimpleNamespace(layers=3), SimpleNamespace(), unedited=run)
    assert lab.steepest("grows", "resid_max", 1) == 1
    assert lab.values == {"grows": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    files = write_both(tmp_path_factory.mktemp("tiny"))
    small = {"controls": 4, "control_prompts": 2, "twin": False}
    with of_any_size():
        section = run.carry_out(study("background/quantise", files, **small), files / "out")
    return files / "out", section


def test_controls_do_the_same_at_other_positions_in_the_same_layer(folder):
    out, section = folder
    (claim,) = section.verdicts
    data = {name: open_store(out / f"{name}.zarr") for name in ("removed", "removed-controls")}
    errors = {name: 100 * one["stream_error"].values[:, :, 1:, 1:].mean(axis=(-2, -1)) for name, one in data.items()}
    found = errors["removed"][1, :2] - errors["removed-controls"][1:].mean(axis=0)
    assert claim.judgement.D.mean == pytest.approx(-found.mean(), rel=1e-3)
    size = data["removed"]["resid_max"].isel(edit=0, position=0).values[:2].mean(axis=0)
    first = int(np.diff(size).argmax())
    written = data["removed"]["resid_max"].values[:, :, : first + 1]
    np.testing.assert_array_equal(written[0], written[1])  # nothing before the layer changes


def test_the_edit_is_a_dropped_mlp(tiny_config):
    study = Conditions(program("background/quantise"), tiny_config, {"grows": 1}, position=2, length=16, controls=3)
    study.assert_same(study.of("removed")["the layer in which it grows"].edit, sinkjax.drop_mlp(2, layers=1))
    study.assert_same(study.of("masked")["all layers"].edit, sinkjax.mask_key(2))
    for sweep, made in (("removed", lambda position: sinkjax.drop_mlp(position, layers=1)), ("masked", sinkjax.mask_key)):
        drawn = study.random(sweep)
        assert len(drawn) == 3
        for point in drawn:
            (term,) = point.edit.terms
            (position,) = term.queries if sweep == "removed" else term.keys
            assert position != 2
            study.assert_same(point.edit, made(position))
