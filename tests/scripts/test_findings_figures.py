"""What is kept of scans, the figures drawn from it, and the numbers that pages take from it."""

from __future__ import annotations

import numpy as np
import pytest
import xarray

SCRIPT = "findings_figures.py"
FIRST = 200.0


def scan(ratios: list[float], special: list[int]) -> xarray.Dataset:
    """A scan of tokens whose activation in layer 1 is this share of the first token's."""
    count = len(ratios)
    largest = np.stack([np.full(count, 1.0), FIRST * np.array(ratios)], axis=1)
    data = {
        "largest": (("token", "layer"), largest),
        "cosine": (("token", "layer"), np.full((count, 2), 0.25)),
        "score": (("token", "sink"), np.zeros((count, 0))),
        "first_largest": ("layer", np.array([2.0, FIRST])),
        "other_largest": ("layer", np.array([1.0, 4.0])),
        "first_score": ("sink", np.zeros(0)),
        "other_score": ("sink", np.zeros(0)),
        "special": ("token", np.isin(np.arange(count), special)),
    }
    return xarray.Dataset(data, {"token": 10 * np.arange(count), "text": ("token", [f"t{one}" for one in range(count)])})


@pytest.mark.parametrize("few", [False, True])
def test_a_scan_is_kept_as_counts_and_named_exceptions(script, few):
    ratios = [0.01, 1.0, 0.02, 0.03] if few else [1.0, 0.01, 0.9, 1.1]
    rows = script["rows_of"]("smollm2-135m", scan(ratios, [0]), 4)
    (about,) = (dict(zip(script["COLUMNS"]["models"], row, strict=True)) for row in rows["models"])
    assert (about["tokens"], about["special"], about["sinks"], about["none"], about["layer"]) == (
        4,
        1,
        *((1, 3) if few else (3, 1)),
        1,
    )
    assert (float(about["first"]), float(about["other"])) == (FIRST, 4)
    assert sum(row[-1] for row in rows["sizes"]) == 4
    assert [(row[1], row[2]) for row in rows["exceptions"]] == [(10, "t1")]


def test_pages_name_what_is_kept_and_the_figure_has_a_panel_a_model(script, tmp_path):
    from named import Named

    docs = tmp_path / "docs"
    for model, ratios in {"smollm2-135m": [1.0] * 5000, "gemma3-270m": [1.0, *[0.01] * 2000]}.items():
        for name, found in script["rows_of"](model, scan(ratios, [0]), 5000 if model == "smollm2-135m" else 20_010).items():
            file = docs / "results/data" / "scan" / f"{name}.csv"
            kept = [list(row.values()) for row in script["read"](file)] if file.exists() else []
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(script["as_text"](script["COLUMNS"][name], [*kept, *found]))
    named = Named(docs)
    assert named("scan/smollm2-135m/sinks") == "5,000"
    assert named("scan/gemma3-270m/median") == "0.01"
    assert named("scan/gemma3-270m/share") == "10%"
    with pytest.raises(SystemExit, match="scan/smollm2-135m/other_name"):
        named("scan/smollm2-135m/other_name")
    figure = script["scans"](docs / "results/data" / "scan")
    titles = [panel.get_title(loc="left") for panel in figure.axes]
    assert titles == [
        "SmolLM2-135M-Instruct:\n5,000 above half, of 5,000 tokens",
        "Gemma 3 270M:\n1 above half, of 10% of its tokens",
    ]


def test_predictions_are_counted_by_intervention(script, tmp_path):
    from named import Named

    folder = tmp_path / "results" / "data" / "predictions"
    folder.mkdir(parents=True)
    rows = ["prediction,ratio_alone,sink_predicted,share_measured,sink_measured,right", '"masked, document 0",0.9,1,0.9,1,1']
    rows += ['"placed, token 1",0.3,0,0.8,1,0', '"placed, token 2",0.2,0,0.7,1,0', '"placed, token 3",0.1,0,0,0,1']
    (folder / "m-measured.csv").write_text("\n".join(rows) + "\n")
    named = Named(tmp_path)
    whats = (
        "all",
        "sinks",
        "right",
        "masked/right",
        "placed/wrong",
        "least",
        "others",
        "others-right",
        "measured",
        "placed/share",
    )
    found = [named(f"predictions/m/{what}") for what in whats]
    assert found == ["4", "1", "2", "1", "2", "20", "3", "1", "3", "50"]


def test_the_crossover_has_every_number_of_masked_layers(script):
    first, second = script["crossover"]().axes
    assert [len(line.get_xdata()) for line in first.lines[:2]] == [30, 30]
    assert [len(line.get_xdata()) for line in second.lines[:2]] == [18, 18]
    assert first.lines[0].get_ydata()[-1] == 0
    assert first.lines[1].get_ydata()[-1] > 60
