"""The benchmark for accelerators: at toy size on any device, and what it says where there is none."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts" / "benchmarks"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    return importlib.import_module("bench_accelerator")


def cells(text: str) -> dict[str, list[str]]:
    """The lines of the table by their first cell."""
    lines = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in text.splitlines() if line.startswith("| ")]
    return {name: rest for name, *rest in lines}


def test_every_row_is_measured_at_toy_size(bench, capsys):
    bench.main(["--quick"])
    found = cells(capsys.readouterr().out)
    for name in (
        "forward, 16 positions, sinkjax",
        "forward, 64 positions, pallas",
    ):
        assert float(found[name][0].split(" ")[0].replace(",", "")) > 0  # a busy machine needs seconds
    assert found["forward, 64 positions, pallas"][1].endswith("%")
    assert float(found["trigger task, 2 seeds, a step of one"][0].split(" ")[0]) > 0


def test_without_an_accelerator_it_says_so(bench, tmp_path):
    page = tmp_path / "page.md"
    bench.main(["--page", str(page)])
    found = cells(page.read_text())
    assert "without an accelerator" in page.read_text()
    measured = {name: row for name, row in found.items() if name not in ("what", "---")}
    assert len(measured) == 5 * 3 + 1
    assert all(row[0] == "not measured" for row in measured.values())
    assert (tmp_path / "data" / "benchmarks.csv").read_text().count("\n") == 1  # the head of a table without numbers


def test_a_row_has_the_same_numbers_as_text_and_as_data(bench):
    row = bench.Row("a forward", [1.0, 3.0, 2.0], 0.449, goal=0.45)
    assert row.cells() == ["a forward", "2 (1 to 3)", "45%", "45%, missed"]
    time, share = row.numbers()
    assert (time.measure, time.value, time.low, time.high) == ("a forward (ms)", "2", "1", "3")
    assert (share.measure, share.value, share.goal, share.met) == ("a forward (%)", "45", "at least 45", "missed")
    assert not [*bench.Row("a forward", bench.NOT_MEASURED, goal=0.45).numbers()]
