"""docs/add-a-study.md: its two forms are one value, run, and are rebuilt; a file that is not a study is refused."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from sinkjax.cli import main as cli
from sinkjax.config_files import programs
from sinkjax.studies.registry import open_own
from tests.studies.tiny import write_both

PAGE = Path(__file__).parents[2] / "docs" / "add-a-study.md"
OPTIONS = ["--prompts", "3", "--length", "12", "--controls", "3", "--control-prompts", "2"]
READS_B = "claims: {a: {contrast: {effect: {measure: loss, where: {at: b}}}}}\n"
WORDS = {"replicates", "replicates (untrained too)", "weaker", "shown", "differs", "undecided", "untested"}


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The two forms of the page, in files beside a tiny model and a text."""
    folder = write_both(tmp_path_factory.mktemp("mine"))
    text = PAGE.read_text(encoding="utf-8")
    for language, name in (("python", "my_study.py"), ("yaml", "my_study.yaml"), ("py", "lowered.py")):
        found = re.search(rf"```{language}\n(.*?)```", text, re.DOTALL)
        assert found is not None
        (folder / name).write_text(found.group(1), encoding="utf-8")
    return folder


def arguments(folder: Path) -> list[str]:
    return [str(folder / "my_study.yaml"), "--model", str(folder / "model"), "--text", str(folder / "text.txt"), *OPTIONS]


@pytest.mark.parametrize("name", ["my_study.py", "my_study.yaml", "lowered.py"])
def test_the_example_is_short(example, name):
    lines = (example / name).read_text(encoding="utf-8").splitlines()
    assert sum(bool(line.strip()) for line in lines) <= 25


def test_both_forms_are_one_value(example):
    programs.typed(example / "my_study.py")
    assert open_own(example / "my_study.py").value == open_own(example / "my_study.yaml").value


def test_the_function_measures_the_same(example, tmp_path):
    rows = []
    for name in ("lowered.py", "my_study.yaml"):
        out, chosen = tmp_path / name, [str(example / name), *arguments(example)[1:]]
        assert cli.main(["run", *chosen, "--out", str(out)]) == 0
        lines = csv.DictReader((out / "summary.csv").open())
        rows.append([[line[column] for column in ("edit", "measure", "mean", "effect_mean")] for line in lines])
        assert len((out / "claims.csv").read_text().splitlines()) == 3
        assert (out / "figures" / "lowered-strength.png").is_file()
    assert rows[0] == rows[1]


def test_the_example_runs_and_is_rebuilt_from_its_folder(example, tmp_path, capsys):
    out = tmp_path / "out"
    assert cli.main(["plan", *arguments(example)]) == 0
    assert cli.main(["run", *arguments(example), "--out", str(out)]) == 0
    claims = {line["claim"]: line["word"] for line in csv.DictReader((out / "claims.csv").open())}
    assert {*claims} == {"gone", "next"}
    assert set(claims.values()) <= WORDS
    summary = [*csv.DictReader((out / "summary.csv").open())]
    assert {line["edit"] for line in summary} == {"no edit", *(f"strength -{strength}" for strength in (1, 2, 4, 8))}
    assert {line["controls"] for line in summary if line["edit"] == "strength -8"} == {"3"}
    assert (out / "figures" / "lowered-strength.png").is_file()
    (out / "report.html").unlink()
    assert cli.main(["report", str(out)]) == 0
    assert (out / "report.html").is_file()
    assert cli.main(["run", *arguments(example), "--seed", "1", "--out", str(out)]) == 2
    assert "seed was 0, now 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("mine.py", None, "/mine.py: No such file"),
        ("mine.py", "x = 1\n", "defines no function `study`"),
        ("mine.py", "import nothing_of_that_name\n", "cannot be imported: No module named 'nothing_of_that_name'"),
        ("mine.py", "def broken(:\n", "cannot be imported: "),
        ("mine.yaml", "study: mine\ngrid: {}\n", "unknown key 'grid' (did you mean 'grids'?)"),
        ("mine.yaml", "study: mine\ngrids: {a: {grid: {mask_keys: 0}}}\n", "unknown edit 'mask_keys' (did you mean 'mask_key'?"),
        ("mine.yaml", "study: mine\ngrids: {a: {grid: {mask_key: $kay}}}\n", "unknown field 'kay'"),
        ("mine.yaml", "study: mine\nmeasures: [{mask_key: 0}]\n", "unknown measure 'mask_key'"),
        ("mine.yaml", "study: mine\nmeasures: [{sink_rate: {kei: 0}}]\n", "unknown argument 'kei' (did you mean 'key'?)"),
        (
            "mine.yaml",
            "study: mine\ngrids: {a: {grid: {mask_key: 0}}}\n"
            "claims: {a: {contrast: {effect: {measure: loss, where: {at: b}}}}}\n",
            "unknown grid 'b'",
        ),
        ("mine.yaml", "study: mine\nmeasures: [loss]\n", "a study needs a grid, a computation or a training"),
        ("mine.yaml", "study: mine\nclaims: {a: {sign: 1}}\n", "takes one of contrast, identity, described"),
    ],
)
def test_a_file_that_is_not_a_study_is_refused_in_one_sentence(tmp_path, capsys, name, content, sentence):
    if content is not None:
        (tmp_path / name).write_text(content)
    assert cli.main(["run", str(tmp_path / name)]) == 2
    said = capsys.readouterr().err.strip()
    assert sentence in said
    assert "\n" not in said
