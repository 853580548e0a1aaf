"""kiya/figures: the paper's layers and numbers, its order, and which of its numbers a model has."""

from __future__ import annotations

import pytest

from sinkjax.analysis.estimates import constant
from sinkjax.analysis.summary import Row
from sinkjax.papers.kiya import figures
from sinkjax.papers.kiya._first_keys import BOS, MEAN


@pytest.mark.parametrize(("value", "said"), [(26.1553, "equal"), (26.156, "not equal"), (None, "not equal")])
def test_a_number_equals_the_published_one_to_its_last_decimal(value, said):
    rows = [Row(BOS, "vector", "||k||", constant(value)), Row(MEAN, "vector", "||k||", constant(1.0))]
    bos, mean = figures.beside_the_paper(rows, figures.SIZE)
    assert bos.condition == f"BOS (in the paper 26.155, {said})"
    assert "100.611, not equal" in mean.condition
