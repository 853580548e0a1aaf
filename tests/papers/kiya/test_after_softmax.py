"""kiya/after-softmax: one cell hidden in three ways, what is left of a row, and the identity of two of the ways."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.papers.kiya.after_softmax import attention_left
from sinkjax.study.measures import merged, read_measure
from sinkjax.study.registry import find
from sinkjax.study.work import Condition
from tests.study import planted
from tests.study.budget import Conditions
from tests.study.planted import axes
from tests.study.stores import Values

STUDY = find("kiya/after-softmax")
WAYS = ("logits", "renormalised", "weights")
LAYERS: dict[str, Any] = {"layer 0": 0, "layers 0 to 1": [0, 1], "all layers": None}


@pytest.fixture(scope="module")
def study(tiny_config) -> Conditions:
    return Conditions(STUDY, tiny_config, length=24, position=5, ends=(0, 1, 9), controls=4)


@pytest.mark.parametrize("grid", ["masked", "alone"])
def test_the_same_cells_are_hidden_in_three_ways(study, grid):
    cells: dict[str, Any] = {"keys": 0} if grid == "masked" else {"queries": 5}
    found = study.of(grid)
    assert [*found][1:] == [f"way {way} in {label}" for label in LAYERS for way in WAYS]
    for label, layers in LAYERS.items():
        for way, (site, value) in zip(WAYS, (("logits", -np.inf), ("weights", 0.0), ("weights", 0.0)), strict=True):
            renormalise = way == "renormalised"
            wanted = sinkjax.edit(site, "set", value, relation="others", renormalise=renormalise, layers=layers, **cells)
            study.assert_same(found[f"way {way} in {label}"].edit, wanted)


def test_what_is_left_of_a_row_is_the_sum_of_its_weights(tiny_config, tiny_params):
    tokens, lengths = np.random.default_rng(0).integers(0, tiny_config.vocab_size, (2, 10)), np.array([10, 7])
    edit = sinkjax.edit("weights", "set", 0.0, keys=0, relation="others")
    probe = merged(attention_left().asks, sinkjax.Probe(attention=(0, 1, 2)))
    record = sinkjax.forward(tiny_params, tokens, tiny_config, edit, probe, lengths).record
    data = xarray.Dataset({"row_sum": (("edit", "prompt", "layer"), np.asarray(record["row_sum"])[None])})
    maps = np.asarray(record["attention"])  # prompt, layer, head, query, key
    expected = [100 * maps[row, :, :, :length, :length].sum(-1).mean() for row, length in enumerate(lengths)]
    np.testing.assert_allclose(read_measure(attention_left(), data)[0], expected, rtol=1e-5)
    assert max(expected) < 95


@pytest.mark.parametrize(("gain", "word"), [(3.0, "replicates"), (0.0, "absent"), (-1.0, "opposite")])
def test_a_loss_collapses_if_it_rises_as_no_other_key_does(gain, word):
    def numbers(name: str, point: Condition) -> Values:
        edited = point.draw < 0 and axes(point).get("way") == "weights" and not name.endswith("-twin")
        return {("loss",): 3.0 + np.resize([-0.02, 0.02], 16) + edited * (gain + np.resize([0.01, 0.0, -0.01], 16))}

    assert judged(numbers)["collapse"] == word


def judged(numbers: Any) -> dict[str, str]:
    settings = {"prompts": 16, "control_prompts": 16, "length": 24}
    return planted.words(STUDY, numbers, layers=2, **settings)
