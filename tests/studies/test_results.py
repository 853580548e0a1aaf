"""Means, paired effects and percentiles, from values that make the answers obvious."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
import xarray

from sinkjax.analysis.summary import Rank, Row, summary_csv
from sinkjax.errors import SinkjaxError
from sinkjax.studies.listed import largest_activation
from sinkjax.studies.study import Measure
from tests.studies.planted import synthetic

SIZE = Measure("size (m)", lambda data: data["size"].values)


def table(
    values: dict[str, list], budgets: dict[str, int] | None = None, controls: dict[str, list] | None = None
) -> dict[str, Row]:
    """The summary's row of each condition."""
    found = synthetic(values, SIZE, budgets, controls).table
    return {condition: row for (condition, _), row in found.items()}


def test_an_effect_is_the_mean_difference_of_pairs():
    found = table({"none": [1, 2, 6], "edit": [2, 4, 9]})
    row = found["edit"]
    assert (row.value.mean, row.effect.mean, row.value.n) == (5, 2, 3)
    assert row.effect.low < 2 < row.effect.high
    assert found["none"].effect.mean == 0


def test_an_effect_without_spread_has_an_interval_of_one_point():
    row = table({"none": [1, 2, 6], "edit": [2, 3, 7]})["edit"]
    assert (row.effect.low, row.effect.mean, row.effect.high) == (1, 1, 1)


def test_a_difference_of_rounding_is_no_effect():
    values = {"none": [20_000.0, 3.0, np.inf], "same": [20_000.005, 3.0000001, np.inf], "other": [20_000.0, 3.0001, np.inf]}
    found = table(values)
    same, other = found["same"].effect, found["other"].effect
    assert (same.mean, same.low, same.high) == (0, 0, 0)
    assert other.mean == pytest.approx(0.00005, rel=1e-6)


def test_a_percentile_counts_the_controls_of_the_same_budget_only():
    values = {"none": [0, 0], "one": [3, 3], "all": [3, 3]}
    budgets = {"one": 1, "all": 9, "a": 1, "b": 1, "c": 1, "d": 9}
    found = table(values, budgets, {"a": [1, 1], "b": [2, 2], "c": [4, 4], "d": [5, 5]})
    assert [found[name].rank for name in ("one", "all", "none")] == [Rank(2, 0, 3), Rank(0, 0, 1), None]


def test_a_percentile_compares_on_the_prompts_that_the_controls_have():
    found = table({"none": [10, 0], "one": [13, 100]}, {"one": 1, "a": 1, "b": 1}, {"a": [12], "b": [14]})
    assert found["one"].rank == Rank(1, 0, 2)


def test_an_undefined_effect_has_no_rank():
    row = table({"none": [0, 0], "one": [np.nan, 1]}, {"one": 1, "a": 1}, {"a": [1, 1]})["one"]
    assert (row.rank, row.value.n) == (None, 1)


def test_a_measure_may_compare_each_condition_with_a_number_of_its_own():
    places = {"none": 0, "left": 0, "right": 1, "random": 1}
    values = {"none": [[1, 5], [2, 8]], "left": [[4, 5], [6, 8]], "right": [[1, 7], [2, 9]]}

    def at(data: xarray.Dataset, edit: int | None) -> np.ndarray:
        size, labels = data["size"].values, data["edit"].values
        return np.stack([size[each if edit is None else edit, :, places[name]] for each, name in enumerate(labels)])

    measure = Measure("size (m)", lambda data: at(data, None), baseline=lambda data: at(data, 0))
    random = {"none": values["none"], "random": [[9, 7], [9, 9]]}
    found = synthetic(values, measure, {"left": 1, "right": 1, "random": 1}, random).table
    effects = {label: found[label, "size (m)"].effect.mean for label in values}
    assert effects == {"none": 0, "left": 3.5, "right": 1.5}  # 4 - 1 and 6 - 2; 7 - 5 and 9 - 8
    assert [found[label, "size (m)"].rank.percentile for label in ("left", "right")] == [100, 50]


def test_conditions_that_a_store_does_not_hold_are_refused():
    results = synthetic({"none": [1], "edit": [2]}, SIZE)
    results.stores = {name: data.assign_coords(edit=["none", "other"]) for name, data in results.stores.items()}
    with pytest.raises(SinkjaxError, match="'other' and 'edit'"):
        _ = results.table


def test_the_csv_has_a_line_for_each_condition_and_measure_and_blanks_for_what_does_not_exist():
    rows = list(table({"none": [1, 2], "edit, of two": [2, 4]}).values())
    lines = list(csv.DictReader(io.StringIO(summary_csv(rows))))
    assert [line["edit"] for line in lines] == ["none", "edit, of two"]
    assert float(lines[1]["effect_mean"]) == 1.5
    assert lines[1]["percentile"] == ""


def test_a_statistic_that_is_not_there_is_named():
    results = synthetic({"none": [1, 2, 6], "layer 0": [2, 4, 9]}, SIZE)
    with pytest.raises(SinkjaxError, match="which the study's probe did not measure; the store 'sweep' holds size"):
        results.values(largest_activation(0))
