"""background/stages: runs of layers, and the layer that is clamped in each."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.papers.background._massive import stages
from sinkjax.papers.background.stages import stages_of
from sinkjax.study.registry import find
from tests.study.budget import Conditions


@pytest.mark.parametrize(
    ("inside", "found"), [([0, 1, 1, 0, 1], [(1, 2), (4, 4)]), ([1, 0, 0], [(0, 0)]), ([0, 0], []), ([1, 1], [(0, 1)])]
)
def test_a_stage_is_a_run_of_layers(inside, found):
    assert stages(np.array(inside, bool)) == found


def run_of(sizes: list[float]) -> SimpleNamespace:
    """A run of two prompts whose first token has these activations, with a median of 1: some are below Sun et al.'s ratio."""
    largest = np.array([1.0, *sizes])[None, None, :, None] * np.ones((1, 2, 1, 3))
    axes = ("edit", "prompt", "depth")
    data = xarray.Dataset({"resid_max": ((*axes, "position"), largest), "state_median": (axes, np.ones((1, 2, len(sizes) + 1)))})
    return SimpleNamespace(data=lambda probe: data)


def test_each_stage_has_the_layer_where_it_grows_most():
    assert stages_of(run_of([1, 233, 723, 580, 60, 53, 20_000, 20_500])) == [[1, 2, 3], [6, 6, 7]]
    assert stages_of(run_of([1, 5, 90, 80])) == [[2, 2, 2]]  # none is massive: the largest


def test_only_the_largest_dim_is_set_after_one_layer(tiny_config):
    study = Conditions(find("background/stages"), tiny_config, {"stages": [[0, 0, 0], [1, 2, 2]]}, length=12)
    first, last = (study.of("clamped")[f"stage {name}"].edit for name in ("first", "last"))
    for edit, layer in ((first, 0), (last, 2)):
        (term,) = edit.terms
        assert (term.site, term.layers) == (sinkjax.Site.RESID, (layer,))
        assert (np.asarray(term.value)[layer] == 0).sum() == 1
