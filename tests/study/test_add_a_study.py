"""docs/add-a-study.md: its example runs and is rebuilt, its table is read; a file that is not a study is refused."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from sinkjax.cli import main as cli
from sinkjax.study.registry import open_own
from sinkjax.study.trained import specs
from tests.study.tiny import write_both

PAGE = Path(__file__).parents[2] / "docs" / "add-a-study.md"
OPTIONS = ["--prompts", "3", "--length", "12", "--controls", "3", "--control-prompts", "2"]


def code(language: str, number: int = 0) -> str:
    """A block of the page."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[number]


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study of the page, in a file beside a tiny model and a text."""
    folder = write_both(tmp_path_factory.mktemp("mine"))
    (folder / "lowered.py").write_text(code("py"), encoding="utf-8")
    return folder


def arguments(folder: Path) -> list[str]:
    return [str(folder / "lowered.py"), "--model", str(folder / "model"), "--text", str(folder / "text.txt"), *OPTIONS]


def test_the_example_is_short_and_is_the_one_that_the_command_writes(tmp_path, capsys):
    assert sum(bool(line.strip()) for line in code("py").splitlines()) <= 25
    assert cli.main(["study", "starter", "--copy", str(tmp_path / "mine.py")]) == 0
    assert (tmp_path / "mine.py").read_text(encoding="utf-8") == code("py")
    assert str(tmp_path / "mine.py") in capsys.readouterr().out


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("sink_rate(1, s.eps), loss()", "sink_rat(1, s.eps), loss()", "NameError: name 'sink_rat' is not defined"),
        ("add_logit(0, x)", "add_logit(0)", "TypeError: add_logit() missing 1 required positional argument: 'value'"),
        ("@dataclass(", "@dataclas(", "NameError: name 'dataclas' is not defined"),
    ],
)
def test_a_mistake_in_a_study_is_told_in_one_line_with_its_place(example, was, now, said, capsys):
    wrong, text = example / "wrong.py", code("py").replace(was, now)
    wrong.write_text(text, encoding="utf-8")
    number = 1 + text[: text.index(now)].count("\n")
    assert cli.main(["plan", str(wrong), *arguments(example)[1:]]) == 2
    *_, last = capsys.readouterr().err.splitlines()
    assert last.startswith(f"sinkjax: {wrong}, line {number}: {said}")
    wrong.unlink()


def test_the_table_of_the_page_is_a_study(tmp_path):
    (tmp_path / "mine.yaml").write_text(code("yaml", 1), encoding="utf-8")
    study = open_own(tmp_path / "mine.yaml").study
    trained = {spec.name: spec.training for spec in specs(study.trace(study.settings(), None), study.settings())}
    assert {name: training.bos for name, training in trained.items()} == {"bos": "first", "no-bos": "none"}
    assert study.settings().seeds == 8


def test_the_example_runs_and_is_rebuilt_from_its_folder(example, tmp_path, capsys):
    out = tmp_path / "out"
    assert cli.main(["plan", *arguments(example)]) == 0
    assert cli.main(["run", *arguments(example), "--out", str(out)]) == 0
    claims = {line["claim"]: line["word"] for line in csv.DictReader((out / "claims.csv").open())}
    assert {*claims} == {"key 0 loses its attention", "the second token receives it"}
    assert {*claims.values()} == {"not applicable"}  # random weights have no sink to lower
    summary = [*csv.DictReader((out / "summary.csv").open())]
    assert {line["edit"] for line in summary} == {"no edit", *(f"strength -{strength}" for strength in (1, 2, 4, 8))}
    assert {line["controls"] for line in summary if line["edit"] == "strength -8"} == {"3"}
    assert (out / "figures" / "lowered-strength.png").is_file()
    (out / "report.html").unlink()
    assert cli.main(["report", str(out), "--study", str(example / "lowered.py")]) == 0
    assert (out / "report.html").is_file()
    assert cli.main(["run", *arguments(example), "--seed", "1", "--out", str(out)]) == 2
    assert "seed was 0, now 1" in capsys.readouterr().err


def test_the_sweep_file_of_the_page_is_measured_and_judged(example, tmp_path):
    text = code("yaml").replace(
        "model: mini-softmax", f"model: {example / 'model'}\ntext: {example / 'text.txt'}\nprompts: 3\nlength: 12"
    )
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    assert cli.main(["sweep", str(tmp_path / "mine.yaml"), "--out", str(tmp_path / "out")]) == 0
    summary = [*csv.DictReader((tmp_path / "out" / "summary.csv").open())]
    assert {line["measure"] for line in summary} == {
        "loss (nats per token)",
        "heads that sink on key 0 (%)",
        "attention to key 1 in layer 2, mean over heads (%)",
    }
    assert [line["edit"] for line in summary[::3]] == [
        "no edit",
        *(f"add_logit(key=0, value={x})" for x in (-1, -2, -4)),
        "key 0 at -8",
    ]
    claims = {line["claim"]: line for line in csv.DictReader((tmp_path / "out" / "claims.csv").open())}
    assert {*claims} == {"key 0 loses its attention", "the second token receives it"}
    assert {line["word"] for line in claims.values()} == {"confirmed"}
