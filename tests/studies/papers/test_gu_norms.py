"""gu/norms: norms and ratios of the first token and of the others, and the verdicts on them."""

from __future__ import annotations

import numpy as np
import pytest
import xarray

from sinkjax.studies.papers.gu import norms
from sinkjax.studies.results import Results
from tests.studies.planted import Planted, row


def test_a_position_is_compared_with_the_others_but_never_with_itself_or_the_first(rng):
    values = rng.uniform(1, 9, (2, 3, 6))
    values[1, :, 5] = np.nan
    first, others, ratios = norms.compared(values, (0, 3))
    assert first.shape == (3, 2)
    np.testing.assert_allclose(first[2], values[:, 2, 0])
    np.testing.assert_allclose(others[1], [values[0, 1, 1:].mean(), values[1, 1, 1:5].mean()])
    np.testing.assert_allclose(ratios[1, 0, 1], values[0, 1, 3] / values[0, 1, [1, 2, 4, 5]].mean())
    np.testing.assert_allclose(ratios[1, 1, 1], values[1, 1, 3] / values[1, 1, [1, 2, 4]].mean())


def test_heads_are_averaged(rng):
    values = rng.uniform(1, 9, (2, 3, 4, 6))
    np.testing.assert_allclose(norms.compared(values, (0,))[0], values[..., 0].mean(2).T)


def test_the_embedding_is_no_layer_of_the_mean():
    values = np.ones((1, 2, 3, 8))
    values[..., 0] = [9, 1, 2]
    arrays = {"resid_norm": (("edit", "prompt", "depth", "position"), values)}
    heads = ("edit", "prompt", "layer", "head", "position")
    arrays |= dict.fromkeys(("query_norm", "key_norm", "value_norm"), (heads, values[:, :, :, None]))
    store = xarray.Dataset(arrays, {"edit": ["no edit"]}, {"sweep": {"config": {"layers": 3}}})
    rows = Results(norms.STUDY, norms.Norms(length=8, controls=2), {"norms": store}).own
    assert rows["hidden state, all layers", norms.RATIO].value.mean == 1.5
    assert rows["hidden state, depth 0", norms.RATIO].value.mean == 9
    assert rows["hidden state, depth 0", norms.RATIO].rank.controls == 2
    assert rows["keys, all layers", norms.RATIO].value.mean == 4
    labels = {row.condition for row in rows.values() if row.series == norms.KEYS}
    assert labels == {"keys, all layers", "keys, layer 0", "keys, layer 1", "keys, layer 2"}


@pytest.mark.parametrize(
    ("hidden", "keys", "values", "verdicts"),
    [
        ((60, 100), (-0.5, 0), (-0.7, 0), ["supported"] * 3),
        ((3.9, 100), (-0.24, 0), (-0.24, 0), ["inconclusive"] * 3),
        ((60, 95), (-0.5, 5), (-0.7, 5), ["inconclusive"] * 3),
        ((4.1, 100), (-0.26, 0), (-0.26, 5), ["supported", "supported", "inconclusive"]),
        ((1.5, 100), (2.3, 0), (2.3, 0), ["contradicted"] * 3),
    ],
)
def test_verdicts_follow_their_rule(hidden, keys, values, verdicts):
    """Intervals reach one to either side: an upper end of 0.75 is one of a mean of -0.25."""
    planted = zip((norms.HIDDEN, norms.KEYS, norms.VALUES), (hidden, keys, values), strict=True)
    named = ((f"{name}, all layers", mean, rank) for name, (mean, rank) in planted)
    rows = {(label, norms.RATIO): row(label, norms.RATIO, mean, percentile=rank) for label, mean, rank in named}
    assert Planted("gu/norms", rows=rows).verdicts() == verdicts
