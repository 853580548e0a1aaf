"""kiya/bos-swap: the conditions and controls, effects at the right places, and verdicts by their rules."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import xarray

from sinkjax.analysis.estimates import present
from sinkjax.analysis.rules import judge
from sinkjax.errors import SinkjaxError
from sinkjax.studies.papers.kiya import bos_swap
from sinkjax.studies.papers.kiya.bos_swap import STUDY, BosSwap
from sinkjax.studies.results import Results
from sinkjax.studies.specs import ABSENT

T, LAYERS, PROMPTS = 20, 4, 3
CONFIG = BosSwap(length=T, positions=(2, 5), shown=5, controls=4)


def record(moves: bool = False, from_layer: int = 0, sinks: bool = True, massive: bool = True) -> xarray.Dataset:
    """A model whose sink and massive activation go with the first token, or stay where they are, from one layer on."""
    places = (0, *CONFIG.positions)
    received = np.full((len(places), PROMPTS, LAYERS, 2, T), 0.01)
    largest = np.ones((len(places), PROMPTS, LAYERS + 1, T))
    for edit, place in enumerate(places):
        at = place if moves else 0
        received[edit, :, from_layer:, :, at] = 0.9 if sinks or edit == 0 else 0.01
        largest[edit, :, from_layer + 1 :, at] = 100 if massive else 1
    return dataset([entry.label for entry in bos_swap.conditions(CONFIG, None)], received, largest)


def dataset(labels: list[str], received: np.ndarray, largest: np.ndarray) -> xarray.Dataset:
    return xarray.Dataset(
        {
            "attention_received": (("edit", "prompt", "layer", "head", "key"), received),
            "resid_max": (("edit", "prompt", "depth", "position"), largest),
            "nll": (("edit", "prompt", "position"), np.ones((*largest.shape[:2], T))),
        },
        {"edit": labels},
    )


def results(plain: xarray.Dataset, bos: xarray.Dataset | None, **more: xarray.Dataset) -> Results:
    """Both runs; without `bos` the model has none."""
    stores = {"plain": plain, "bos": xarray.Dataset(attrs={ABSENT: "no BOS"}) if bos is None else bos, **more}
    attributes = {"sweep": {"config": {"layers": LAYERS}, "model": {"name": "m"}, "dtype": "float32"}}
    return Results(STUDY, CONFIG, {name: store.assign_attrs(attributes) for name, store in stores.items()})


def verdicts(found: Results) -> list[str]:
    return [judge(claim, found).verdict for claim in STUDY.claims(found.config, found.architecture)]


def test_conditions_swap_position_0_with_each_place_and_controls_never_touch_it():
    none, *swaps = bos_swap.conditions(CONFIG, None)
    assert none.edit.terms == ()
    assert [entry.edit.terms[0].value.tolist() for entry in swaps] == [[0, 2], [0, 5]]
    assert [entry.at for entry in (none, *swaps)] == [(0,), (2,), (5,)]
    drawn = list(bos_swap.other_tokens(dataclasses.replace(CONFIG, controls=200), None))
    pairs = [entry.edit.terms[0].value.tolist() for entry in drawn]
    assert all(i != j and 0 < i <= T - 8 and 0 < j <= T - 8 for i, j in pairs)
    assert [entry.at for entry in drawn] == [(j,) for _, j in pairs]
    assert {entry.budget for entry in (*swaps, *drawn)} == {1}


def test_effects_and_controls_are_compared_with_the_same_place_without_an_edit(rng):
    drawn = list(bos_swap.other_tokens(CONFIG, None))
    data, random = record(), record().isel(edit=np.zeros(len(drawn), int), prompt=slice(2))
    data["resid_max"][:] = 50 + rng.standard_normal(data["resid_max"].shape)
    random["resid_max"][:] = 50 + rng.standard_normal(random["resid_max"].shape)
    random = random.assign_coords(edit=[entry.label for entry in drawn])
    found = results(data, None, **{"plain-controls": random})
    largest, others = (store["resid_max"].values.max(axis=2) for store in (data, random))
    row = found.table["without BOS: first token to 5", "largest |h| at the moved token"]
    assert row.series == "swap"
    assert row.value.mean == pytest.approx(largest[2, :, 5].mean())
    assert row.effect.mean == pytest.approx((largest[2, :, 5] - largest[0, :, 5]).mean())
    effect = (largest[2, :2, 5] - largest[0, :2, 5]).mean()
    random_effects = [(others[n, :, entry.at[0]] - largest[0, :2, entry.at[0]]).mean() for n, entry in enumerate(drawn)]
    assert (row.percentile, row.controls) == (pytest.approx(100 * np.mean(np.array(random_effects) < effect)), 4)
    assert found.table["without BOS: no edit", "largest |h| at the moved token"].value.mean == pytest.approx(
        largest[0, :, 0].mean()
    )


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (record(True), ["supported", "inconclusive", "inconclusive"]),
        (record(False), ["inconclusive", "inconclusive", "supported"]),
        (record(False, 2), ["inconclusive", "supported", "supported"]),
        (record(True, 2), ["inconclusive"] * 3),
        (record(False, LAYERS), ["inconclusive"] * 3),
        (record(True, massive=False), ["inconclusive"] * 3),
        (record(True, sinks=False), ["inconclusive"] * 3),
        (record(False, 2, massive=False), ["inconclusive"] * 3),
        (record(False, 2, sinks=False), ["inconclusive"] * 3),
    ],
)
def test_verdicts_follow_where_sink_and_massive_activation_go(data, expected):
    assert verdicts(results(data, data)) == [*expected, expected[-1]]


def test_without_a_bos_the_claims_on_it_do_not_apply():
    found = results(record(), None)
    assert verdicts(found) == ["not applicable"] * 3 + ["supported"]
    first, *_ = STUDY.claims(CONFIG, found.architecture)
    assert judge(first, found).reason == "no BOS"
    figures = present(STUDY.figures(CONFIG, found.architecture), found)
    assert [figure.name for figure in figures if figure] == ["by-layer", "by-place", "largest-activation"]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"positions": (0,), "shown": 0}, "positions has 0, but must lie in 1 to 56: a sink needs 8 queries"),
        ({"positions": (57,), "shown": 57}, "positions has 57, .* a sink needs 8 queries"),
        ({"positions": (1, 1), "shown": 1}, "each of them once"),
        ({"shown": 3}, "shown must be one of positions"),
        ({"massive": 1.0}, "massive must be above 1"),
    ],
)
def test_a_swap_that_cannot_be_read_is_refused(fields, sentence):
    with pytest.raises(SinkjaxError, match=sentence):
        BosSwap(**fields)
