"""The numbers of benchmarks: judged before they are rounded, kept by section, and the same in the table and on the page."""

from __future__ import annotations

import csv
import importlib
import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch):
    """Import a script, or a module beside it, as Python does when it runs one."""
    monkeypatch.syspath_prepend(ROOT / "scripts")
    monkeypatch.syspath_prepend(ROOT / "scripts" / "benchmarks")
    return importlib.import_module


def lines(file: Path) -> list[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as table:
        return list(csv.DictReader(table))


def test_a_number_is_the_median_of_rounds_and_judged_before_it_is_rounded(script):
    as_number = script("measured").as_number
    found = as_number("a ratio", [1.6, 1.499, 1.4], ".1f", (1.5, None), "3.0")
    assert found == ("a ratio", "1.5", "1.4", "1.6", "at least 1.5", "missed", "3.0")
    assert as_number("a ratio", [1.15], goal=(None, 1.15)) == ("a ratio", "1.15", "", "", "at most 1.15", "met", "")
    assert as_number("a ratio", [1.16], ".2f", (0.85, 1.15))[4:6] == ("0.85 to 1.15", "missed")
    assert as_number("a time (ms)", [1234.0, 2345.0]).value == "1790"


def test_a_section_takes_the_place_of_its_own_numbers_only(script, tmp_path):
    measured = script("measured")
    page, as_number = tmp_path / "page.md", measured.as_number
    measured.keep(page, "two", [as_number("a", [1.0]), as_number("b", [2.0])], "a CPU", "2026-01-01", "two.py")
    measured.keep(page, "one", [as_number("a", [3.0])], "a CPU", "2026-01-01", "one.py")
    measured.keep(page, "two", [as_number("b", [4.0])], "a GPU", "2026-01-02", "two.py")
    found = [
        (line["section"], line["measure"], line["value"], line["device"]) for line in lines(tmp_path / "data/benchmarks.csv")
    ]
    assert found == [("one", "a", "3", "a CPU"), ("two", "b", "4", "a GPU")]


def test_a_new_section_goes_behind_the_one_of_the_same_script(script, tmp_path):
    write, page = script("sections").write_section, tmp_path / "page.md"
    for name, near in (("one", ""), ("other", ""), ("one_avx2", "one")):
        write(page, name, f"text of {name}", "# Title", near)
    assert re.findall("begin (.*) -->", page.read_text()) == ["one", "one_avx2", "other"]
    assert "<!-- end one_avx2 -->\n\n<!-- begin other -->" in page.read_text()


def test_every_number_of_the_table_is_in_its_section_of_the_page():
    page = re.sub(r"(?<=\d),(?=\d{3})", "", (RESULTS / "benchmarks-full.md").read_text(encoding="utf-8"))
    sections = dict(re.findall(r"<!-- begin (\w+) -->(.*?)<!-- end \1 -->", page, re.DOTALL))
    rows = lines(RESULTS / "data" / "benchmarks.csv")
    assert len({(row["section"], row["measure"]) for row in rows}) == len(rows) > 100
    for row in rows:
        for value in filter(None, (row[name] for name in ("value", "low", "high", "bound"))):
            assert re.search(rf"(?<![\d.]){re.escape(value)}(?!\.?\d)", sections[row["section"]]), (row, value)
        assert (ROOT / "scripts" / "benchmarks" / row["script"]).exists()


def test_a_page_shows_a_number_with_its_rounds_its_goal_and_its_place(script, tmp_path):
    measured = script("measured")
    numbers = [
        measured.as_number("a ratio", [2.0, 4.0, 3.0], goal=(3.5, None), bound="5"),
        measured.as_number("share, one (%)", [40.0], ".0f", (30, None)),
        measured.as_number("share, two (%)", [8.0], ".0f", (20, None)),
    ]
    measured.keep(tmp_path / "results/page.md", "speeds", numbers, "a CPU", "2026-01-01", "a.py")
    look = script("named").Named(tmp_path)
    assert look("speed/speeds/a ratio") == "3 (2 to 4)"
    assert look("speed/speeds/a ratio", "value") == "3"
    assert look("speed/speeds/a ratio", "time") == "33%"
    assert look("speed/speeds/a ratio", "row") == "3 (2 to 4) | at least 3.5, **missed**; bound 5 | a CPU, 2026-01-01"
    assert look("speed/speeds/share, * (%)") == "8% to 40%"
    assert look("speed/speeds/share, * (%)", "goal") == "at least 30% or 20%, **missed**"
    for name in ("speed/speeds/no ratio", "speed/nothing/a ratio"):
        with pytest.raises(SystemExit, match=name):
            look(name)


def test_a_sweep_from_before_the_present_store_is_marked_and_nothing_else(script):
    place_of = script("named").place_of
    old, new = ({"device": "a CPU", "script": "a.py", "measure": "a sweep", "date": f"2026-11-{day}"} for day in (26, 27))
    assert place_of([old]) == "a CPU, 2026-11-26 (before the present store)"
    assert place_of([old, new]) == "a CPU, 2026-11-26 (before the present store) to 2026-11-27"
    assert place_of([new]) == "a CPU, 2026-11-27"
    assert place_of([old | {"measure": "a training"}]) == "a CPU, 2026-11-26"
    assert place_of([old | {"measure": "a study", "script": "bench_studies.py"}]).endswith("store)")


def test_the_figure_has_a_point_for_each_ratio_at_its_value(script):
    figure, rows = script("benchmarks_figure"), lines(RESULTS / "data" / "benchmarks.csv")
    (panel,) = figure.drawn(rows).axes
    wanted = sorted(float(row["value"]) for row in rows if any(figure.is_shown(row, *one) for one in figure.SHOWN.values()))
    drawn = [line for line in panel.lines if len(line.get_xdata()) == 1 and line.get_markerfacecolor() != "white"]
    assert sorted(float(line.get_xdata()[0]) for line in drawn) == wanted
    low, high = panel.get_xlim()
    assert all(low < value < high for value in wanted)


def test_an_error_of_bfloat16_is_a_share_of_the_norm_and_for_the_loss_of_its_spread(script):
    found = script("bench_bfloat16").errors(
        {"logits": np.array([3.0, 4.5]), "loss": np.array([1.0, 3.5])},
        {"logits": np.array([3.0, 4.0]), "loss": np.array([1.0, 3.0]), "gradient": np.ones(2)},
    )
    assert found == {"logits": pytest.approx(10), "loss": pytest.approx(50 / 2**0.5)}
