"""The page of loss in use: differences are paired by document, from the same model under the same edit in full."""

from __future__ import annotations

import pandas as pd
import pytest

SCRIPT = "in_use.py"


def rows(script, edit: str, way: str, losses: list[float]) -> pd.DataFrame:
    documents = [f"novel {number}" for number in range(len(losses))]
    return pd.DataFrame({"model": "mine", "bos": "none", "edit": edit, "way": way, "document": documents, "loss": losses})


def test_a_cell_is_what_a_way_to_run_adds_to_the_same_edit_in_full(script) -> None:
    way, full = "window of 16 keys", script["FULL"]
    base = [4.0 + number for number in range(8)]
    parts = [
        rows(script, script["PLAIN"], full, base),
        rows(script, script["PLAIN"], way, [loss + 0.5 for loss in base]).sample(frac=1, random_state=0),
        rows(script, script["WITHOUT"], full, [loss + 1 for loss in base]),
        rows(script, script["WITHOUT"], way, [loss + 0.75 for loss in base]),
    ]
    found = script["table"](pd.concat(parts)).set_index(["edit", "way"])
    assert found["loss"].tolist() == [7.5, 8.0, 8.5, 8.25]
    assert found.loc[(script["PLAIN"], way), ["added", "added_low", "added_high"]].tolist() == [0.5, 0.5, 0.5]
    assert found.loc[(script["WITHOUT"], way), ["added", "added_low", "added_high"]].tolist() == [-0.25, -0.25, -0.25]
    assert found.loc[(script["PLAIN"], full), ["documents", "added"]].tolist() == [8, 0.0]


def test_every_way_to_run_is_one_that_evaluate_takes(script) -> None:
    """On a model that is there; a text of a few words is enough for the shortest cache."""
    import sinkjax

    model = sinkjax.load("mini-softmax")
    text = "They sent for Ness at half past two to bring the doctor over, and the doctor came at four with his bag."
    edit = script["mean_activation"](model, sinkjax.encode(model, [text], bos="model", length=16)[0])
    plain = sinkjax.evaluate(model, text).loss
    assert sinkjax.evaluate(model, text, edits=edit).loss != plain
    assert {*script["BITS"], *script["CACHES"], script["FULL"]} == {*script["WAYS"]}
    assert sinkjax.evaluate(model, text, **script["CACHES"]["4 first and 60 last keys"]).loss == pytest.approx(plain, abs=1e-4)


def test_the_table_of_the_page_has_what_a_way_adds(script) -> None:
    ways = (script["FULL"], *script["SHORT"])
    data = pd.concat(rows(script, script["PLAIN"], way, [4.0 + number] * 8) for number, way in enumerate(ways))
    text = script["comparison"](data, ["mine", "mine"])
    assert f"| {ways[0]} | 4.000 | 4.000 |" in text
    assert "| window of 16 keys | +5.000 | +5.000 |" in text
    assert set(script["SHORT"]) <= set(script["WAYS"])


def test_the_figure_has_each_way_in_its_panel_and_the_loss_that_it_adds(script) -> None:
    full, way = script["FULL"], "weights of {} bits, one scale an output"
    assert {each for ways in script["PANELS"].values() for each in ways.values()} <= {*script["WAYS"]}
    base = [4.0 + number for number in range(8)]
    told = {full: 0.0, way.format(8): 0.125, way.format(4): 0.5}
    data = pd.concat(rows(script, script["PLAIN"], kind, [loss + more for loss in base]) for kind, more in told.items())
    line = script["Line"]("mine", data, script["PLAIN"], "C0")
    for added, first in ((True, 0.0), (False, 7.5)):
        panels = dict(zip(script["PANELS"], script["drawn"]([line], added=added).axes, strict=True))
        drawn = panels.pop("weights, one scale per output").lines[0]
        assert drawn.get_ydata() == pytest.approx([first, first + 0.125, first + 0.5])
        assert drawn.get_xdata().round() == pytest.approx([0, 1, 3])
        assert not any(each.get_marker() == "o" for ax in panels.values() for each in ax.lines)
