"""Means, paired effects and percentiles, from values that make the answers obvious."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.errors import SinkjaxError
from sinkjax.experiments.base import Arm
from sinkjax.experiments.summary import Measure, Measured, summarise, to_csv

SIZE = Measure("size (m)", lambda data: data["size"].values)


def arm(label: str, budget: int | None = None) -> Arm:
    return Arm(sinkjax.compose(label=label), "group", budget=budget)


def measured(values: dict[str, list[float]], budgets: dict[str, int] | None = None) -> Measured:
    """Arms by label with one value for each prompt."""
    data = xarray.Dataset({"size": (("edit", "prompt"), np.array(list(values.values()), float))}, {"edit": list(values)})
    return Measured(data, [arm(label, (budgets or {}).get(label)) for label in values])


def test_an_effect_is_the_mean_difference_of_pairs():
    table = summarise(measured({"none": [1, 2, 6], "edit": [2, 4, 9]}), [SIZE], seed=0)
    row = table["edit", "size (m)"]
    assert (row.value.mean, row.effect.mean, row.value.n) == (5, 2, 3)
    assert 1 <= row.effect.low < 2 < row.effect.high <= 3
    assert table["none", "size (m)"].effect.mean == 0


def test_an_effect_without_spread_has_an_interval_of_one_point():
    row = summarise(measured({"none": [1, 2, 6], "edit": [2, 3, 7]}), [SIZE], seed=0)["edit", "size (m)"]
    assert (row.effect.low, row.effect.mean, row.effect.high) == (1, 1, 1)


def test_a_difference_of_rounding_is_no_effect():
    values = {"none": [20_000.0, 3.0, np.inf], "same": [20_000.005, 3.0000001, np.inf], "other": [20_000.0, 3.0001, np.inf]}
    table = summarise(measured(values), [SIZE], seed=0)
    same, other = table["same", "size (m)"].effect, table["other", "size (m)"].effect
    assert (same.mean, same.low, same.high) == (0, 0, 0)
    assert other.mean == pytest.approx(0.00005, rel=1e-6)


def test_a_percentile_counts_the_controls_of_the_same_budget_only():
    sweep = measured({"none": [0, 0], "one": [3, 3], "all": [3, 3]}, {"one": 1, "all": 9})
    controls = measured({"a": [1, 1], "b": [2, 2], "c": [4, 4], "d": [5, 5]}, {"a": 1, "b": 1, "c": 1, "d": 9})
    table = summarise(sweep, [SIZE], seed=0, controls=controls)
    assert (table["one", "size (m)"].percentile, table["one", "size (m)"].controls) == (pytest.approx(200 / 3), 3)
    assert (table["all", "size (m)"].percentile, table["all", "size (m)"].controls) == (0, 1)
    assert (table["none", "size (m)"].percentile, table["none", "size (m)"].controls) == (None, 0)


def test_a_percentile_compares_on_the_prompts_that_the_controls_have():
    sweep = measured({"none": [10, 0], "one": [13, 100]}, {"one": 1})
    controls = measured({"a": [12], "b": [14]}, {"a": 1, "b": 1})
    assert summarise(sweep, [SIZE], seed=0, controls=controls)["one", "size (m)"].percentile == 50


def test_an_undefined_effect_has_no_rank():
    sweep = measured({"none": [0, 0], "one": [np.nan, 1]}, {"one": 1})
    row = summarise(sweep, [SIZE], seed=0, controls=measured({"a": [1, 1]}, {"a": 1}))["one", "size (m)"]
    assert (row.percentile, row.controls, row.value.n) == (None, 0, 1)


def test_a_measure_may_compare_each_edit_with_a_number_of_its_own():
    places = {"none": 0, "left": 0, "right": 1, "random": 1}
    values = {"none": [[1, 5], [2, 8]], "left": [[4, 5], [6, 8]], "right": [[1, 7], [2, 9]]}

    def measured(values: dict, budgets: dict[str, int]) -> Measured:
        data = xarray.Dataset(
            {"size": (("edit", "prompt", "place"), np.array(list(values.values()), float))}, {"edit": list(values)}
        )
        return Measured(data, [arm(name, budgets.get(name)) for name in values])

    def at(data: xarray.Dataset, row: int | None) -> np.ndarray:
        size = data["size"].values
        return np.stack([size[each if row is None else row, :, places[name]] for each, name in enumerate(data["edit"].values)])

    size = Measure("size (m)", lambda data: at(data, None), against=lambda data: at(data, 0))
    controls = measured({"none": values["none"], "random": [[9, 7], [9, 9]]}, {"random": 1})
    table = summarise(measured(values, {"left": 1, "right": 1}), [size], seed=0, controls=controls)
    effects = {label: table[label, "size (m)"].effect.mean for label in values}
    assert effects == {"none": 0, "left": 3.5, "right": 1.5}  # 4 - 1 and 6 - 2; 7 - 5 and 9 - 8
    assert [table[label, "size (m)"].percentile for label in ("left", "right")] == [100, 50]


def test_arms_that_a_store_does_not_hold_are_refused():
    data = measured({"none": [1], "edit": [2]}).data
    with pytest.raises(SinkjaxError, match="'edit' and 'other'"):
        Measured(data, [arm("none"), arm("other")])
    with pytest.raises(SinkjaxError, match="2 and 1"):
        Measured(data, [arm("none")])


def test_the_csv_has_a_line_for_each_arm_and_measure_and_blanks_for_what_does_not_exist():
    rows = summarise(measured({"none": [1, 2], "edit, of two": [2, 4]}), [SIZE], seed=0).values()
    lines = list(csv.DictReader(io.StringIO(to_csv(list(rows)))))
    assert [line["edit"] for line in lines] == ["none", "edit, of two"]
    assert float(lines[1]["effect_mean"]) == 1.5
    assert lines[1]["percentile"] == ""
