"""background/compression: spectra against a singular value decomposition, and each claim needs every part of its rule."""

from __future__ import annotations

import numpy as np
import pytest
import xarray

from sinkjax.errors import SinkjaxError
from sinkjax.probes.statistics import View
from sinkjax.studies.papers.background import compression
from sinkjax.studies.papers.background._spectra import bound_by, correlation, matrix_entropy, spectrum
from sinkjax.studies.papers.background.compression import ALL, STUDY, WHERE_IT_GROWS, Compression
from sinkjax.studies.specs import specs
from sinkjax.studies.study import NO_EDIT
from tests.studies.planted import Planted, row

N, L = 8, 8


def test_the_spectrum_is_that_of_the_singular_values_of_each_prompt(rng):
    x = rng.standard_normal((2, 6, 9)).astype(np.float32)
    x[:, 0] *= 50
    shares = np.asarray(spectrum(x, View(np.array([6, 4]))))
    for values, length, found in zip(x, (6, 4), shares, strict=True):
        squares = np.linalg.svd(values[:length], compute_uv=False) ** 2
        np.testing.assert_allclose(found[:length], squares / squares.sum(), atol=2e-6)
        np.testing.assert_allclose(found[length:], 0, atol=1e-6)


def test_the_bound_holds_and_is_reached_by_orthogonal_and_by_parallel_rows(rng):
    def both(x: np.ndarray, position: int = 0) -> tuple[np.ndarray, np.ndarray]:
        view = View(np.full(len(x), x.shape[1]))
        return np.asarray(spectrum(x, view))[..., 0], np.asarray(bound_by(position)(x, view))

    share, bound = both(rng.standard_normal((20, 6, 9)).astype(np.float32), position=2)
    assert (bound < share).all()
    parallel = np.outer([3.0, -1.0, 2.0], [1.0, 2.0, 0.0])[None].astype(np.float32)
    np.testing.assert_allclose(both(parallel), 1, rtol=1e-6)
    np.testing.assert_allclose(both(np.diag([3.0, 1.0, 1.0]).astype(np.float32)[None]), 9 / 11, rtol=1e-6)


def test_entropy_is_in_bits_and_correlation_is_pearsons(rng):
    np.testing.assert_allclose(matrix_entropy([[1, 0, 0, 0], [0.25] * 4]), [0, 2])
    x, y = rng.standard_normal((2, 3, 8))
    np.testing.assert_allclose(correlation(x, y), [np.corrcoef(a, b)[0, 1] for a, b in zip(x, y, strict=True)])
    assert np.isnan(correlation(x, np.ones_like(x))).all()


def test_an_edit_and_its_controls_differ_in_the_position_alone():
    shape, config = Planted(STUDY, architecture={"layers": 5}).architecture, Compression(length=40)
    edits = {entry.budget: entry.edit for entry in compression.conditions(config, shape, 3) if entry.budget is not None}
    drawn = list(compression.random_positions(config, shape, 3))
    assert {entry.budget for entry in drawn} == {*edits} == {WHERE_IT_GROWS, ALL}
    for entry in drawn:
        (control,), (own,) = entry.edit.terms, edits[entry.budget].terms
        assert (control.site, control.op, control.layers) == (own.site, own.op, own.layers)
        assert control.queries != own.queries == (0,)


def test_controls_drop_another_position_within_reach():
    shape = Planted(STUDY, architecture={"layers": 5}).architecture
    drawn = list(STUDY.controls[0].conditions(Compression(length=12), shape, 3))
    assert [entry.budget for entry in drawn] == [WHERE_IT_GROWS] * 3 + [ALL] * 3  # all that there are
    for start in (0, 3):
        assert sorted(entry.edit.terms[0].queries[0] for entry in drawn[start : start + 3]) == [1, 2, 3]
    assert [list(entry.edit.terms[0].layers) for entry in drawn] == [[3]] * 3 + [[0, 1, 2, 3, 4]] * 3
    assert compression.middle(31) == slice(6, 26)


def test_a_model_of_few_layers_and_a_late_position_are_refused(tiny_config):
    with pytest.raises(SinkjaxError, match="compares early, middle and late layers, and this model has 3"):
        specs(STUDY, Compression(), tiny_config)
    with pytest.raises(SinkjaxError, match="position 60 is seen by fewer than 8 of 64 queries"):
        Compression(position=60)


def judged(shares=(0.5, 0.5, 0.99, 0.99, 0.99, 0.99, 0.99, 0.5, 0.5), slack=0.0, **options) -> list[str]:
    """shares: p_1 by depth. norms: of position 0 by depth. sinking: share of heads by layer. freed, sinks: where it grows."""
    p = np.array(shares)
    norms = np.array(options.get("norms", 100.0 * (p > 0.9)))
    sinking = np.array(options.get("sinking", p[:L] > 0.9), float)
    tiled = {
        "spectrum": (("depth", "rank"), np.stack([p, 1 - p], axis=-1)),
        "bound": (("depth",), p + slack),
        "resid_norm": (("depth", "position"), np.stack([norms, np.ones_like(norms)], axis=-1)),
        "attention_received": (("layer", "head", "key"), np.broadcast_to(sinking[:, None, None], (L, 2, 3))),
    }
    data = xarray.Dataset(
        {
            name: (("edit", "prompt", *dims), np.broadcast_to(values, (1, N, *values.shape)))
            for name, (dims, values) in tiled.items()
        }
    )
    entropy, sinks, *_ = (measure.name for measure in compression.measures(Compression()))
    freed, rank = options.get("freed", (1.1, 100))
    left, below, plain = options.get("sinks", (30, 0, 70))
    rows = {
        (WHERE_IT_GROWS, entropy): row(WHERE_IT_GROWS, entropy, 2.0, freed, rank),
        (WHERE_IT_GROWS, sinks): row(WHERE_IT_GROWS, sinks, left, left - plain, below),
        (NO_EDIT, sinks): row(NO_EDIT, sinks, plain),
    }
    return Planted(STUDY, architecture={"layers": L}, rows=rows, stores={"sweep": data}).verdicts()


@pytest.mark.parametrize(
    ("change", "verdicts"),
    [
        ({}, "sssssh"),
        ({"shares": (*[0.99] * 7, 0.5, 0.5)}, "i"),  # as compressed in the early layers
        ({"shares": (0.5, 0.5, *[0.99] * 7)}, "i"),  # and in the late ones
        ({"shares": (*[0.99] * 3, 0.9, 0.9, 0.9, 0.9, 0.5, 0.5)}, "c"),  # more in the early ones
        ({"norms": [0, 0, 100, 10, 100, 10, 100, 100, 10]}, "scsssh"),  # r = -0.31
        ({"sinking": [1, 1, 0, 0, 0, 0, 0, 1]}, "sscssh"),
        ({"norms": [5.0] * 9}, "snn"),
        ({"freed": (0.9, 100)}, "sssish"),
        ({"freed": (-2, 100)}, "ssscsh"),
        ({"freed": (1.1, 95)}, "sssish"),
        ({"sinks": (34.7, 0, 70)}, "ssssih"),
        ({"sinks": (36, 0, 70)}, "ssssch"),
        ({"sinks": (30, 5, 70)}, "ssssih"),
        ({"sinks": (0, 0, 1)}, "ssssih"),
        ({"slack": 2e-4}, "sssssf"),
    ],
)
def test_each_claim_needs_every_part_of_its_rule(change, verdicts):
    assert "".join(verdict[0] for verdict in judged(**change)).startswith(verdicts)
