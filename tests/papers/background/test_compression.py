"""background/compression: spectra against a singular value decomposition, the theorem, and the contrast at one layer."""

from __future__ import annotations

import numpy as np
import pytest

from sinkjax.papers.background import compression as own
from sinkjax.probes.statistics import View
from sinkjax.study import run
from sinkjax.study.contrasts import Check
from sinkjax.study.folder import open_store
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
