"""The rank of a number among its controls."""

import numpy as np
import pytest

from sinkjax.analysis.summary import Rank, ranks_among


@pytest.mark.parametrize(
    ("value", "controls", "percentile", "above", "below"),
    [
        (0.0, [1, 2, 3, 4], 0, 1, 0.2),
        (2.0, [1, 2, 3, 4], 37.5, 0.8, 0.6),
        (5.0, [1, 2, 3, 4], 100, 0.2, 1),
        (1.0, [1], 50, 1, 1),
    ],
)
def test_percentile_counts_ties_half_and_p_values_against_the_number(value, controls, percentile, above, below):
    rank = Rank.among(value, controls)
    assert (rank.percentile, rank.p_above, rank.p_below) == pytest.approx((percentile, above, below))
    assert rank.controls == len(controls)


@pytest.mark.parametrize(("value", "controls"), [(1.0, []), (np.nan, [1.0]), (1.0, [1.0, np.inf])])
def test_what_is_undefined_has_no_rank(value, controls):
    assert Rank.among(value, controls) is None


def test_effects_are_ranked_among_controls_of_their_budget_on_the_same_prompts():
    effects = np.array([[1.0, 1.0, 99.0], [5.0, 5.0, -99.0], [3.0, 3.0, 3.0]])
    random = np.array([[0.0, 0.0], [2.0, 2.0], [6.0, 6.0]])
    first, second, third = ranks_among(effects, [1, 2, None], random, [1, 1, 2])
    assert (first, second, third) == (Rank(1, 0, 2), Rank(0, 0, 1), None)
