"""background/massive: the edits set the dims that are massive in the model, and each claim needs every part of its rule."""

from __future__ import annotations

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.analysis.summary import Rank, Row
from sinkjax.studies.papers.background import massive
from sinkjax.studies.papers.background._massive import RANKS, Levels, levels_probe, massive_layers
from sinkjax.studies.papers.background.massive import LATER, MEAN, MEDIAN, STUDY, ZERO, Massive
from sinkjax.studies.specs import specs
from tests.studies.planted import Planted, around

N, L, T = 8, 6, 10


def record(largest: float, layers: int = 4, width: int = 20) -> dict[str, np.ndarray]:
    """Two prompts in which dim 7 of the position is massive after layers 1 and 2."""
    stream = np.tile(np.arange(width, dtype=float) / width, (2, layers, 1, 1))
    stream[:, 1:3, 0, 7] = -largest
    top = np.sort(np.abs(stream[:, :, 0]))[..., ::-1][..., :RANKS]
    largest_by_depth = np.concatenate([top[:, :1], top], axis=1)
    return {"stream": stream, "state_largest": largest_by_depth, "state_median": np.full((2, layers + 1), 0.5)}


def test_the_layer_is_the_first_one_after_which_the_definition_holds():
    levels = Levels.of(record(600.0), 2)
    assert (levels.layer, levels.order[1, 0], levels.mean[1, 7]) == (1, 7, -600)
    assert massive_layers(record(600.0)).tolist() == [1, 2]
    assert not massive_layers(record(400.0)).size  # 800 times the median
    assert not massive_layers({**record(90.0), "state_median": np.full((2, 5), 0.01)}).size  # 9,000 times, but below 100


def test_conditions_set_the_massive_dims_and_controls_spare_the_ten_largest(tiny_config):
    levels, config = Levels.of(record(600.0, layers=3, width=32), 2), Massive(length=T)
    made = {condition.label: condition for condition in massive.conditions(config, tiny_config, levels)}
    zero, mean, later, median = (made[label].edit.terms[0] for label in (ZERO, MEAN, LATER, MEDIAN))
    assert zero.dims == mean.dims == later.dims == (7, 31)
    assert not zero.value.any()
    np.testing.assert_allclose(mean.value, [-600, 31 / 32])
    assert (zero.layers, later.layers) == ((1,), (1, 2))
    assert not set(median.dims) & {7, 31, 0}
    drawn = list(STUDY.controls[0].conditions(config, tiny_config, levels))
    assert [entry.budget for entry in drawn] == [made[ZERO].budget] * 20 + [made[MEAN].budget] * 20
    forbidden = set(levels.order[1, :RANKS].tolist())
    assert all(len(set(entry.edit.terms[0].dims)) == 2 and not set(entry.edit.terms[0].dims) & forbidden for entry in drawn)


def test_each_layer_has_its_own_dims(tiny_config):
    levels = Levels.of(record(600.0, layers=3, width=32), 2)
    _, *rest = massive.by_layer(Massive(dims=1), tiny_config, levels)
    assert [entry.edit.terms[0].dims for entry in rest] == [(31,), (7,), (7,)] * 2
    assert [entry.edit.terms[0].layers for entry in rest] == [(0,), (1,), (2,)] * 2


def test_statistics_of_the_hidden_state_leave_pads_out(tiny_config, tiny_params):
    tokens = np.random.default_rng(0).integers(0, 61, (2, T))
    whole = sinkjax.forward(tiny_params, tokens, tiny_config, probe=levels_probe(0), lengths=[T, 7]).record
    alone = sinkjax.forward(tiny_params, tokens[1:, :7], tiny_config, probe=levels_probe(0)).record
    for name in ("state_largest", "state_median"):
        np.testing.assert_allclose(whole[name][1], alone[name][0], rtol=1e-5)


def test_too_many_dims_are_refused(tiny_config):
    with pytest.raises(sinkjax.SinkjaxError, match="dims 30 and 10 more for the controls are more than the model's 32"):
        specs(STUDY, Massive(dims=30, length=T), tiny_config)


def judged(
    sizes: dict[int, float],
    there: bool = True,
    prompts: int = N,
    zero: tuple[float, int] = (2.0, 100),
    mean: float = 0.03,
    median: float = 0.03,
    control: float = 0.04,
) -> str:
    """sizes: layer -> |h| of the position after it, where that is massive, in the first `prompts`. zero: effect, percentile."""
    largest = np.ones((1, N, L + 1, T))
    for layer, size in sizes.items():
        largest[0, :prompts, layer + 1, 0] = size
    if not there:
        largest[..., 3] = 2000
    levels = {
        "state_largest": (("edit", "prompt", "depth", "rank"), np.sort(largest)[..., ::-1]),
        "state_median": (("edit", "prompt", "depth"), np.full((1, N, L + 1), 0.5)),
        "stream": (("edit", "prompt", "layer", "place", "dim"), np.ones((1, N, L, 1, 32))),
        "resid_max": (("edit", "prompt", "depth", "position"), largest),
    }
    labels = [f"control {number}: random dims to {to}" for to in massive.BUDGETS for number in range(20)]
    losses = np.full((40, N, T), 3.0)
    losses[7] += control * np.linspace(0.9, 1.1, N)[:, None]
    losses[20:] = 9  # those set to their mean are not asked
    stores = {
        "sweep": xarray.Dataset({"nll": (("edit", "prompt", "position"), np.full((1, N, T), 3.0))}),
        "controls": xarray.Dataset({"nll": (("edit", "prompt", "position"), losses)}, {"edit": labels}),
        "levels": xarray.Dataset(levels),
    }
    name = massive.measures(Massive())[0].name
    effects = {ZERO: around(zero[0]), MEAN: around(mean, 0.01), MEDIAN: around(median, 0.01)}
    ranked = Rank(zero[1] // 5, 0, 20)
    rows = {(label, name): Row(label, "", name, around(4.0), effect, ranked) for label, effect in effects.items()}
    return "".join(verdict[0] for verdict in Planted(STUDY, rows=rows, stores=stores).verdicts())


STEADY = dict.fromkeys(range(1, L), 600.0)


@pytest.mark.parametrize(
    ("change", "verdicts"),
    [
        ({}, "sssss"),
        ({"there": False}, "cssss"),
        ({"prompts": 4}, "iiiii"),
        ({"sizes": dict.fromkeys((2, 3, 4, 5), 600.0)}, "scsss"),  # not in the first quarter
        ({"sizes": dict.fromkeys((1, 2, 4), 600.0)}, "scsss"),  # two stretches
        ({"sizes": STEADY | {3: 1201.0}}, "scsss"),
        ({"zero": (1.4, 100)}, "ssiss"),
        ({"zero": (-2.0, 100)}, "sscss"),
        ({"zero": (2.0, 95)}, "ssiss"),
        ({"mean": 0.045}, "sssis"),
        ({"mean": 0.07}, "ssscs"),
        ({"mean": -0.07}, "ssscs"),
        ({"median": 0.045}, "ssssi"),
        ({"median": 0.08}, "ssssc"),
        ({"control": 0.05}, "ssssi"),
        ({"control": -0.06}, "ssssc"),
    ],
)
def test_each_claim_needs_every_part_of_its_rule(change, verdicts):
    assert judged(**{"sizes": STEADY, **change}) == verdicts


def test_nothing_is_claimed_of_a_model_without_massive_activations():
    assert judged({}) == "cnnnn"


def test_onsets_gaps_and_sizes_are_those_of_each_prompt():
    """Another prompt's layers do not fill a prompt's gaps."""
    largest = np.ones((1, 3, L + 1, T))
    largest[0, 0, [2, 3, 4], 0] = 600, 900, 700
    largest[0, 1, [2, 5], 0] = 800
    levels = {
        "state_median": (("edit", "prompt", "depth"), np.full((1, 3, L + 1), 0.5)),
        "resid_max": (("edit", "prompt", "depth", "position"), largest),
    }
    results = Planted(STUDY, stores={"levels": xarray.Dataset(levels)})
    np.testing.assert_array_equal(massive.exists(results), [1, 1, 0])
    np.testing.assert_array_equal(massive.of_massive(lambda held, size: held[0])(results), [1, 1, np.nan])
    np.testing.assert_array_equal(massive.of_massive(lambda held, size: held.size)(results), [3, 2, np.nan])
    np.testing.assert_array_equal(massive.of_massive(lambda held, size: size.max() / size.min())(results), [1.5, 1, np.nan])
