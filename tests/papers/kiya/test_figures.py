"""kiya/figures: the paper's layers and numbers, its order, and which of its numbers a model has."""

from __future__ import annotations

import pytest

from sinkjax.analysis.estimates import constant
from sinkjax.analysis.summary import Row
from sinkjax.errors import SinkjaxError
from sinkjax.papers.kiya import figures
from sinkjax.papers.kiya._first_keys import BOS, MEAN
from sinkjax.study import suite
from sinkjax.study.choice import choose
from sinkjax.study.config import All
from sinkjax.study.registry import program
from tests.study.budget import Conditions

STUDY = program("kiya/figures")


def test_edited_layers_are_the_papers(tiny_config):
    study = Conditions(STUDY, tiny_config, position=8, length=24)
    edits = {point.label: point.edit for point in study.lab.sweeps["figures"].points()}
    layers = {label: {term.layers for term in edit.terms} for label, edit in edits.items() if "layer" in label}
    assert layers["first key masked in all layers"] == {None}
    assert layers["first key masked in layer 1"] == {(0,)}
    assert layers["first key masked in layer 2"] == {(1,)}
    assert layers["position 8 sees only itself in layer 2"] == {(1,)}


@pytest.mark.parametrize(("value", "said"), [(26.1553, "equal"), (26.156, "not equal"), (None, "not equal")])
def test_a_number_equals_the_published_one_to_its_last_decimal(value, said):
    rows = [Row(BOS, "vector", "||k||", constant(value)), Row(MEAN, "vector", "||k||", constant(1.0))]
    bos, mean = figures.beside_the_paper(rows, figures.SIZE)
    assert bos.condition == f"BOS (in the paper 26.155, {said})"
    assert "100.611, not equal" in mean.condition


def test_a_suite_begins_with_the_studies_that_it_orders():
    every = suite.names(choose("kiya/all").config)
    assert every[:4] == ["kiya/figures", "kiya/baseline", "kiya/bos-swap", "kiya/rope"]
    assert sorted(every) == suite.names(All(family="kiya"))
    with pytest.raises(SinkjaxError, match=r"order: .*'gu/norms'"):
        suite.names(All(family="kiya", order=("gu/norms",)))
