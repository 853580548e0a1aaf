"""kiya/baseline: what counts as a sink and an activation of the unedited model, and how they grow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray

from sinkjax.papers.kiya.baseline import sink_lag
from sinkjax.study.measures import read_measure
from sinkjax.study.registry import find
from sinkjax.study.work import Condition
from tests.study import planted
from tests.study.stores import Values

STUDY = find("kiya/baseline")
N = 64


def unedited(seen: float = 90.0, early: float = 20.0, other: float = 3.0, size: float = 500.0) -> Any:
    """Attention to key 0 (%), the same in layer 0, and to key 5; largest |h| at position 0 from layer 1 on."""

    def numbers(name: str, point: Condition) -> Values:
        if name.endswith("-twin"):
            seen_here, early_here, size_here = 3.0, 3.0, 3.0
        else:
            seen_here, early_here, size_here = seen, early, size
        noise = iter(np.random.default_rng(len(name)).uniform(-1, 1, (6, N)))
        found: dict[tuple[Any, ...], Any] = {("seen", 0): seen_here + next(noise), ("seen", 0, 0): early_here + next(noise)}
        found |= {("seen", 5): other + next(noise), ("size", 0): size_here * np.exp(next(noise) / 50)}
        found |= {("size", 0, depth): 4.0 + next(noise) for depth in (0, 1)}  # the embedding, and after layer 0
        found |= {("size", place): 10.0 + place / 10 for place in range(1, 24)}
        return found

    return numbers


def words(numbers: Any) -> dict[str, str]:
    return planted.words(STUDY, numbers, layers=4, heads=2, prompts=N, control_prompts=N, length=24)


def test_a_sink_and_an_activation_that_grow_replicate():
    found = words(unedited())
    assert {name: found[name] for name in ("sink", "activation", "sink-grows", "activation-grows")} == dict.fromkeys(
        ("sink", "activation", "sink-grows", "activation-grows"), "replicates"
    )


@pytest.mark.parametrize(
    ("fields", "name", "word"),
    [
        ({"other": 60.0}, "sink", "replicates"),  # key 0 has 90%
        ({"seen": 20.0, "early": 20.0}, "sink-grows", "absent"),
        ({"seen": 8.0, "early": 28.0}, "sink-grows", "opposite"),
        ({"early": 32.0}, "sink-grows", "not applicable"),  # a sink at once, as in Llama-3.2-3B
        ({"seen": 20.0, "early": 10.0, "other": 30.0}, "sink-grows", "not applicable"),  # no sink at half depth
        ({"size": 5.0}, "activation", "opposite"),
        ({"size": 90.0}, "activation-grows", "not applicable"),
    ],
)
def test_each_claim_is_about_its_own_numbers(fields, name, word):
    assert words(unedited(**fields))[name] == word


def test_the_lag_is_between_the_onsets_of_each_stage():
    """As in SmolLM2: an early stage with a small activation, in some texts without a sink, and a late stage."""
    two = [1, 233, 723, 580, 60, 20_000, 20_000]
    sizes = np.array([two, [60] * 7, [1, 1, 1, 1, 1, 1, 500], [1, 1, 1, 1, 300, 300, 300], two])
    seen = np.array([[0, 0, 0.4, 0.4, 0.1, 0.1, 0.5], [0.5] * 7, [0, 0, 0, 0, 0, 0.6, 0.6], [0] * 7, [0, 0, 0, 0, 0, 0, 0.5]])
    data = xarray.Dataset(
        {
            "attention_received": (
                ("edit", "prompt", "layer", "head", "key"),
                seen[None, :, :, None, None] * np.ones((1, 1, 1, 5, 12)),
            ),
            "resid_max": (
                ("edit", "prompt", "depth", "position"),
                np.concatenate([np.full((5, 1), 900), sizes], axis=1)[None, ..., None] * np.ones(12),
            ),
            "resid_median": (("edit", "prompt", "depth", "position"), np.ones((1, 5, 8, 12))),
        }
    )
    np.testing.assert_array_equal(read_measure(sink_lag(0, 0.3), data), [[1, np.nan, -1, np.nan, 1]])
