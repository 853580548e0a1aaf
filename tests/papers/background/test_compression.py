"""background/compression: spectra against a singular value decomposition, the theorem, and the contrast at one layer."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.papers.background import _spectra as own
from sinkjax.probes.statistics import View
from sinkjax.study import Sweep, run
from sinkjax.study.folder import open_store
from sinkjax.study.registry import program
from sinkjax.study.took import Check
from tests.study.budget import Conditions
from tests.study.tiny import study, write_both


def test_the_spectrum_is_that_of_the_singular_values_of_each_prompt(rng):
    x = rng.standard_normal((2, 6, 9)).astype(np.float32)
    x[:, 0] *= 50
    shares = np.asarray(own.spectrum(x, View(np.array([6, 4]))))
    for values, length, found in zip(x, (6, 4), shares, strict=True):
        squares = np.linalg.svd(values[:length], compute_uv=False) ** 2
        np.testing.assert_allclose(found[:length], squares / squares.sum(), atol=2e-6)
        np.testing.assert_allclose(found[length:], 0, atol=1e-6)


def test_the_bound_holds_and_is_reached_by_orthogonal_and_by_parallel_rows(rng):
    def both(x: np.ndarray, position: int = 0) -> tuple[np.ndarray, np.ndarray]:
        view = View(np.full(len(x), x.shape[1]))
        return np.asarray(own.spectrum(x, view))[..., 0], np.asarray(own.bound_by(position)(x, view))

    share, bound = both(rng.standard_normal((20, 6, 9)).astype(np.float32), position=2)
    assert (bound < share).all()
    parallel = np.outer([3.0, -1.0, 2.0], [1.0, 2.0, 0.0])[None].astype(np.float32)
    np.testing.assert_allclose(both(parallel), 1, rtol=1e-6)
    np.testing.assert_allclose(both(np.diag([3.0, 1.0, 1.0]).astype(np.float32)[None]), 9 / 11, rtol=1e-6)


@pytest.mark.parametrize(("share", "holds"), [(0.6, True), (0.4, False)])
def test_the_identity_fails_where_a_share_is_below_its_bound(share, holds):
    shares = np.full((2, 3, 4, 5), 0.1)
    shares[..., 0] = 0.7
    shares[1, 2, 3, 0] = share
    axes = ("edit", "prompt", "depth", "rank")
    data = xarray.Dataset({"spectrum": (axes, shares), "bound": (axes[:3], np.full((2, 3, 4), 0.5))})
    read = SimpleNamespace(data={"dropped": data}.__getitem__)
    assert own.bounded_below(Sweep("dropped", {}))(read)[0] is holds


def test_entropy_is_in_bits_and_correlation_is_pearsons(rng):
    np.testing.assert_allclose(own.matrix_entropy([[1, 0, 0, 0], [0.25] * 4]), [0, 2])
    x, y = rng.standard_normal((2, 3, 8))
    np.testing.assert_allclose(own.correlation(x, y), [np.corrcoef(a, b)[0, 1] for a, b in zip(x, y, strict=True)])
    assert np.isnan(own.correlation(x, np.ones_like(x))).all()
    assert np.isnan(own.correlation(x[:, :2], y[:, :2])).all()


def test_parts_of_the_depth_are_those_of_the_paper():
    depths = np.arange(31.0)  # a model of 30 layers: compressed from depth 6 to 25
    found = [own.part_of_depth(depths, part) for part in ("early", "middle", "late")]
    np.testing.assert_allclose(found, [np.mean(range(6)), np.mean(range(6, 26)), np.mean(range(26, 31))])


def test_the_edit_drops_the_mlp_and_controls_differ_in_the_position_alone(tiny_config):
    study = Conditions(program("background/compression"), tiny_config, {"emerges": 2}, length=16, controls=4)
    found, emerges = study.of("dropped"), "the layer in which it emerges"
    assert [*found] == ["no edit", emerges, "all layers", "layer 0", "layer 1", "layer 2"]
    study.assert_same(found[emerges].edit, sinkjax.drop_mlp(0, layers=2))
    study.assert_same(found["all layers"].edit, sinkjax.drop_mlp(0))
    drawn = study.random("dropped")
    assert {point.case.place.label for point in drawn} == {emerges}
    for point in drawn:
        (position,) = point.edit.terms[0].queries
        assert position > 0
        study.assert_same(point.edit, sinkjax.drop_mlp(position, layers=2))


def test_a_run_judges_the_ablation_and_describes_correlations(tmp_path, monkeypatch):
    monkeypatch.setattr(Check, "test", lambda check, read: (True, ""))  # in a random model the activation stays
    files = write_both(tmp_path)
    small = {"controls": 2, "control_prompts": 2, "twin": False}
    section = run.carry_out(study("background/compression", files, **small), tmp_path / "out")
    found = {verdict.name: verdict for verdict in section.verdicts}
    words = {name: found[name].word for name in ("norm-entropy", "norm-sink", "theorem")}
    assert words == {"norm-entropy": "described", "norm-sink": "described", "theorem": "holds"}
    data = {name: open_store(tmp_path / "out" / f"{name}.zarr") for name in ("dropped", "dropped-controls")}
    middle = {name: own.part_of_depth(own.matrix_entropy(one["spectrum"].values), "middle") for name, one in data.items()}
    expected = middle["dropped"][1, :2] - middle["dropped-controls"][1:].mean(axis=0)
    assert found["entropy"].judgement.D.mean == pytest.approx(expected.mean(), abs=1e-5)
