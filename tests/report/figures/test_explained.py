"""The figures of explanations show the numbers they are given and refuse anything else."""

from __future__ import annotations

import numpy as np
import pytest
import xarray

from sinkjax import SinkjaxError, draw_attribution, draw_parts

NODES = ["attention 0", "MLP 0", "attention 1", "MLP 1"]


def attribution(checked: int = 4) -> xarray.Dataset:
    estimate = np.array([[0.1, 0.3], [0.0, 0.0], [-0.1, -0.1], [0.2, 0.2]])
    exact = np.array([[0.2, 0.2], [-0.5, -0.3], [-0.1, -0.1], [0.5, 0.5]])
    exact[checked:] = np.nan
    values = {"estimate": estimate, "exact": exact, "gap": exact - estimate}
    variables = {name: (("node", "prompt"), array) for name, array in values.items()}
    return xarray.Dataset(variables, {"node": NODES}, {"method": "first-order", "steps": 1, "spearman": 0.4, "pearson": -0.2})


def score() -> xarray.Dataset:
    contribution = np.array([[[[1.0, -4.0, 0.5, 0.1]]], [[[3.0, -2.0, 0.5, 0.3]]]])
    axes = ("prompt", "layer", "head")
    parts = {"part": ["embedding", "head 0.0", "MLP 0", "bias"], "layer": [5], "head": [2], "prompt": [0, 1]}
    return xarray.Dataset({"contribution": ((*axes, "part"), contribution), "score": (axes, contribution.sum(-1))}, parts)


def drawn(figure) -> dict:
    """Label of a series -> its numbers, from above."""
    return {line.get_label(): line.get_xdata() for line in figure.axes[0].lines if not line.get_label().startswith("_")}


def test_the_largest_nodes_have_their_means_beside_each_other():
    figure = draw_attribution(attribution(), names=2)
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["MLP 1", "MLP 0"]
    shown = drawn(figure)
    assert list(shown) == ["exact effect", "first-order estimate"]
    np.testing.assert_allclose([*shown.values()], [[0.5, -0.4], [0.2, 0]])
    assert figure.axes[0].get_title() == "all 4 nodes: Spearman 0.40, Pearson -0.20"


def test_the_title_of_integrated_gradients_has_their_completeness_gap():
    found = attribution().assign_attrs(method="integrated", steps=16, completeness_gap=0.0123)
    figure = draw_attribution(found)
    assert figure.axes[0].get_title() == "all 4 nodes: Spearman 0.40, Pearson -0.20, completeness gap 1.2%"
    assert list(drawn(figure))[1] == "integrated gradients, 16 steps"


def test_only_checked_nodes_are_drawn():
    assert len(drawn(draw_attribution(attribution(checked=3)))["exact effect"]) == 3


def test_a_waterfall_goes_from_0_to_the_whole():
    axes = draw_parts(score(), layer=5, head=2, count=2).axes[0]
    bars = [(bar.get_x(), bar.get_width()) for bar in axes.patches]
    np.testing.assert_allclose(bars, [(0, 2), (2, -3), (-1, 0.7), (0, -0.3)], atol=1e-12)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["embedding", "head 0.0", "2 others", "whole"]
    assert axes.get_title().endswith("head 5.2")
    one = draw_parts(score(), layer=5, head=2, prompt=1, count=4).axes[0]
    np.testing.assert_allclose([bar.get_width() for bar in one.patches], [3, -2, 0.5, 0.3, 1.8])


def test_anything_else_is_refused():
    for draw in (draw_attribution, draw_parts):
        with pytest.raises(SinkjaxError, match=f"{draw.__name__} takes"):
            draw(xarray.Dataset({"nll": ("prompt", [1.0])}))
    with pytest.raises(SinkjaxError, match=r"no node .*checked"):
        draw_attribution(attribution(checked=0))
    with pytest.raises(SinkjaxError, match=r"layer None; .* 5"):
        draw_parts(score())
    with pytest.raises(SinkjaxError, match=r"prompt 3; .* 0, 1"):
        draw_parts(score(), layer=5, head=2, prompt=3)
