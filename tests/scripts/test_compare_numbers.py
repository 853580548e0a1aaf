"""scripts/compare_numbers.py: a cell, a row or a table that differs is named, and equal folders are equal."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TABLE = "edit,measure,mean\nno edit,loss,3.5\nmasked,loss,4.25\n"


@pytest.fixture
def compare() -> dict:
    return runpy.run_path(str(ROOT / "scripts" / "compare_numbers.py"))


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Two folders with the summary of one study."""
    for name in ("before", "after"):
        (tmp_path / name / "kiya-mask").mkdir(parents=True)
        (tmp_path / name / "kiya-mask" / "summary.csv").write_text(TABLE)
    return tmp_path / "before", tmp_path / "after"


def test_equal_folders_are_equal(compare, folders, capsys):
    assert compare["main"](list(map(str, folders))) == 0
    assert re.fullmatch("9 cells of 1 tables .*; 0 rows .*\n", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (TABLE.replace("4.25", "4.250001"), "kiya-mask/summary.csv: row 2, column 2: '4.25' -> '4.250001'"),
        (TABLE.replace("4.25", ""), "kiya-mask/summary.csv: row 2, column 2: '4.25' -> ''"),
        (TABLE + "more,loss,1\n", "kiya-mask/summary.csv: row 3, column 0: '(nothing)' -> 'more'"),
        (TABLE.rpartition("masked")[0], "kiya-mask/summary.csv: row 2, column 0: 'masked' -> '(nothing)'"),
    ],
)
def test_what_differs_is_named(compare, folders, capsys, changed, said):
    (folders[1] / "kiya-mask" / "summary.csv").write_text(changed)
    assert compare["main"](list(map(str, folders))) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == said
    assert lines[-1].endswith("1 rows or tables differ")


def test_a_table_that_only_one_folder_has_is_named(compare, folders, capsys):
    (folders[0] / "kiya-mask" / "claims.csv").write_text("claim,word\n")
    assert compare["main"](list(map(str, folders))) == 1
    assert capsys.readouterr().out.startswith(f"kiya-mask/claims.csv is only in {folders[0]}\n")


def test_folders_without_tables_are_not_equal(compare, tmp_path, capsys):
    assert compare["main"]([str(tmp_path), str(tmp_path)]) == 1
    assert "no summary.csv" in capsys.readouterr().out
