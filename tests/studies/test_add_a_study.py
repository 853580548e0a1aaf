"""docs/add-a-study.md: its example runs from a file outside the package and is rebuilt; a file that is no study is refused."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from sinkjax.cli import main as cli
from tests.studies.tiny import write_both

PAGE = Path(__file__).parents[2] / "docs" / "add-a-study.md"
OPTIONS = ["--prompts", "3", "--length", "12", "--controls", "3", "--control-prompts", "2"]


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example of the page, in a file beside a tiny model and a text."""
    folder = write_both(tmp_path_factory.mktemp("mine"))
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    (folder / "my_study.py").write_text(found.group(1), encoding="utf-8")
    return folder


def arguments(folder: Path) -> list[str]:
    return [str(folder / "my_study.py"), "--model", str(folder / "model"), "--text", str(folder / "text.txt"), *OPTIONS]


def test_the_example_is_short(example):
    lines = (example / "my_study.py").read_text(encoding="utf-8").splitlines()
    assert sum(bool(line.strip()) for line in lines) <= 40


def test_the_example_runs_and_is_rebuilt_from_its_folder(example, tmp_path, capsys):
    out = tmp_path / "out"
    assert cli.main(["plan", *arguments(example)]) == 0
    assert cli.main(["run", *arguments(example), "--out", str(out)]) == 0
    verdicts = {line["claim"]: line["verdict"] for line in csv.DictReader((out / "claims.csv").open())}
    assert len(verdicts) == 3
    assert set(verdicts.values()) <= {"supported", "contradicted", "inconclusive"}
    summary = [*csv.DictReader((out / "summary.csv").open())]
    assert {line["edit"] for line in summary} == {"no edit", *(f"key 0 by {strength}" for strength in (1, 2, 4, 8))}
    assert {line["controls"] for line in summary} == {"0", "3"}
    assert (out / "figures" / "sink-by-strength.png").is_file()
    (out / "report.html").unlink()
    assert cli.main(["report", str(out)]) == 0
    assert (out / "report.html").is_file()
    assert cli.main(["run", *arguments(example), "--seed", "1", "--out", str(out)]) == 2
    assert "seed was 0, now 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "there is no study file"),
        ("x = 1\n", "defines no STUDY"),
        ("import nothing_of_that_name\n", "cannot be imported: No module named 'nothing_of_that_name'"),
        ("def broken(:\n", "cannot be imported: "),
    ],
)
def test_a_file_that_is_no_study_is_refused_in_one_sentence(tmp_path, capsys, content, sentence):
    if content is not None:
        (tmp_path / "mine.py").write_text(content)
    assert cli.main(["run", str(tmp_path / "mine.py")]) == 2
    said = capsys.readouterr().err.strip()
    assert sentence in said
    assert "\n" not in said
