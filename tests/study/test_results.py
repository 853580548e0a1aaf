"""Means, paired effects and percentiles, from values that make the answers obvious."""

from __future__ import annotations

import csv
import io

import pytest

from sinkjax.analysis.summary import Rank, Row, summary_csv
from sinkjax.errors import SinkjaxError
from sinkjax.study import Measure, own
from tests.study import planted_results as planted

SIZE = Measure("size (m)", lambda data: data["size"].values)


def table(values: dict[str, list], controls: dict[str, dict[str, list]] | None = None) -> dict[str, Row]:
    """The summary's row of each condition."""
    return {condition: row for (condition, _), row in planted.table(values, SIZE, controls).items()}


def test_an_effect_is_the_mean_difference_of_pairs():
    found = table({"none": [1, 2, 6], "edit": [2, 4, 9]})
    row = found["edit"]
    assert (row.value.mean, row.effect.mean, row.value.n) == (5, 2, 3)
    assert row.effect.low < 2 < row.effect.high
    assert found["none"].effect.mean == 0


def test_a_percentile_counts_the_controls_of_the_same_condition_only():
    values = {"none": [0, 0], "one": [3, 3], "all": [3, 3]}
    found = table(values, {"one": {"a": [1, 1], "b": [2, 2], "c": [4, 4]}, "all": {"d": [5, 5]}})
    assert [found[name].rank for name in ("one", "all", "none")] == [Rank(2, 0, 3), Rank(0, 0, 1), None]


def test_a_measure_may_compare_each_condition_with_a_number_of_its_own():
    values = {"none": [[1, 5], [2, 8]], "left": [[4, 5], [6, 8]], "right": [[1, 7], [2, 9]]}
    measure = own("x", lambda place: Measure(f"size at key {place} (m)", lambda data: data["size"].values[..., place]))
    random = {"": {"none": values["none"]}, "right": {"random": [[9, 7], [9, 9]]}, "left": {"other": [[4, 0], [7, 0]]}}
    found = planted.table(values, measure, random, {"left": 0, "right": 1})
    assert [row.effect.mean for row in found.values()] == [0, 3.5, 1.5]  # 4 - 1 and 6 - 2; 7 - 5 and 9 - 8
    assert [row.rank for row in found.values()] == [None, Rank(0, 0, 1), Rank(0, 1, 1)]  # below 4; as much as 1.5


def test_conditions_that_a_store_does_not_hold_are_refused():
    _, read = planted.synthetic({"none": [1], "edit": [2]}, SIZE)
    read.stores = {name: data.assign_coords(edit=["none", "other"]) for name, data in read.stores.items()}
    with pytest.raises(SinkjaxError, match="'other' and 'edit'"):
        read.conditions(planted.SWEEP)


def test_the_csv_has_a_line_for_each_condition_and_measure_and_blanks_for_what_does_not_exist():
    rows = list(table({"none": [1, 2], "edit, of two": [2, 4]}).values())
    lines = list(csv.DictReader(io.StringIO(summary_csv(rows))))
    assert [line["edit"] for line in lines] == ["none", "edit, of two"]
    assert float(lines[1]["effect_mean"]) == 1.5
    assert lines[1]["percentile"] == ""
