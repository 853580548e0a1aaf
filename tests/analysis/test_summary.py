"""The rank of a number among its controls."""

import numpy as np
import pytest

from sinkjax.analysis.summary import Rank, ranks_among


@pytest.mark.parametrize(
    ("value", "controls", "percentile"),
    [(0.0, [1, 2, 3, 4], 0), (2.0, [1, 2, 3, 4], 37.5), (5.0, [1, 2, 3, 4], 100), (1.0, [1], 50)],
)
def test_percentile_counts_ties_half(value, controls, percentile):
    rank = Rank.among(value, controls)
    assert rank.percentile == pytest.approx(percentile)
    assert rank.controls == len(controls)


@pytest.mark.parametrize(("value", "controls"), [(1.0, []), (np.nan, [1.0]), (1.0, [1.0, np.inf])])
def test_what_is_undefined_has_no_rank(value, controls):
    assert Rank.among(value, controls) is None


def test_effects_are_ranked_among_controls_of_their_budget_on_the_same_prompts():
    effects = np.array([[1.0, 1.0, 99.0], [5.0, 5.0, -99.0], [3.0, 3.0, 3.0]])
    random = np.array([[0.0, 0.0], [2.0, 2.0], [6.0, 6.0]])
    first, second, third = ranks_among(effects, [1, 2, None], random, [1, 1, 2])
    assert (first, second, third) == (Rank(1, 0, 2), Rank(0, 0, 1), None)
