"""background/quantise: the error is that of rounding, and the edit is where the activation grows most."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.analysis.evidence import NOT_TAKEN
from sinkjax.papers.background.quantise import neuron_error, others_rounding, tensor_error, tensor_rounding, token_rounding
from sinkjax.probes.statistics import View
from sinkjax.study import layer, run
from sinkjax.study.baseline import Baseline, Unedited
from sinkjax.study.folder import open_store
from sinkjax.study.measures import read_measure
from sinkjax.study.registry import program
from tests.study.budget import Conditions
from tests.study.tiny import of_any_size, study, write_both


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


def test_a_random_model_keeps_its_activation_in_other_dims_so_that_nothing_is_judged(folder):
    out, section = folder
    (claim,) = section.verdicts
    left = open_store(out / "held.zarr")["resid_max"].isel(position=0).values.max(axis=-1).mean(axis=-1)  # [edit]
    share = left[-1] / left[0]
    assert share > 0.1
    assert (claim.word, f"{share:.0%} of " in claim.took) == (NOT_TAKEN, True)


def test_a_token_left_unrounded_sets_no_scale(rng):
    x = rng.standard_normal((1, 5, 8)).astype(np.float32)
    view = View(np.array([5]))
    others = np.asarray(tensor_rounding(x[:, 1:], View(np.array([4]))))
    x[0, 0, 3] = 1000
    np.testing.assert_allclose(np.asarray(others_rounding(0)(x, view))[:, 1:], others, rtol=1e-5)


def test_the_largest_dims_are_held_at_zero_and_controls_hold_others(tiny_config):
    study = Conditions(program("background/quantise"), tiny_config, {"grows": 1}, position=2, length=16, controls=3)
    held = study.of("held")
    for count in (1, 2):
        zero = sinkjax.edit("resid", "set", 0.0, queries=2, dims=[*range(count)])  # placeholders are in this order
        study.assert_same(held[f"dims {count}"].edit, zero)
    study.assert_same(study.of("dropped")["the layer in which it grows"].edit, sinkjax.drop_mlp(2, layers=1))
    study.assert_same(study.of("masked")["all layers"].edit, sinkjax.mask_key(2))
    drawn = study.random("held")
    assert len(drawn) == 3
    for point in drawn:
        (term,) = point.edit.terms
        assert len({*term.dims}) == 2
        assert min(term.dims) >= 10
