"""The attention maps of README.md: the named token's column is the bright one, and the kept numbers come out again."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

import sinkjax

SCRIPT = "first_column.py"
DATA = Path(__file__).parents[2] / "docs" / "results" / "data" / "first-column.csv"


def kept() -> dict[str, float]:
    with DATA.open(encoding="utf-8", newline="") as file:
        return {row["row"]: float(row["mean"]) for row in csv.DictReader(file)}


@pytest.mark.gemma3
def test_the_named_tokens_column_is_the_brightest_and_has_the_kept_number(script):
    models = {name: sinkjax.load(name) for name in (script["SMOLLM"], script["GEMMA"])}
    for one in script["prompts"](models):
        weights = script["attention"](models[one.model], one.ids)
        means = [script["received"](weights, key) for key in range(len(one.ids) - 1)]
        assert np.argmax(means[: len(means) - 2]) == one.sink
        assert means[one.sink] == pytest.approx(kept()[one.title], abs=0.1)


def test_any_later_token_has_at_least_the_heads_of_the_strongest_one():
    for model in ("smollm2-135m", "gemma3-270m"):
        assert kept()[f"{model}: any"] >= kept()[f"{model}: the strongest one"]


def test_the_mean_over_later_queries_leaves_out_the_keys_own_row(script):
    weights = np.array([[1, 0, 0], [0.5, 0.5, 0], [0.25, 0.25, 0.5]])
    assert script["received"](weights, 0) == 37.5
    assert script["received"](weights, 1) == 25


def test_a_panel_has_its_tokens_and_the_sinks_in_colour(script):
    one = script["Map"]("a title", "m", [1, 2, 3], 1)
    (panel, *_) = script["figure"]([(one, np.tri(3) / 3, [" a", "<bos>", "c"])] * 4).axes
    assert panel.get_title(loc="left") == "a title"
    assert [name.get_text() for name in panel.get_xticklabels()] == ["a", "<bos>", "c"]
    assert [name.get_color() == "black" for name in panel.get_xticklabels()] == [True, False, True]
