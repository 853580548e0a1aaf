"""Short prompts of one's own: every kind of run fits number and length to them, unless the user states these."""

from __future__ import annotations

from pathlib import Path

import pytest

from sinkjax.analysis import intervals
from sinkjax.cli import main as cli
from sinkjax.study.registry import choose
from tests.study.tiny import SENTENCE, write_model

SIZES = (20, 25, 30, 40)  # bytes, which are tokens


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    write_model(folder / "model")
    (folder / "own.txt").write_text("\n".join(SENTENCE[number : number + size] for number, size in enumerate(SIZES)))
    return folder


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "RESAMPLES", 100)


def sizes(folder: Path) -> tuple[int, int]:
    config = choose(str(folder)).config
    return config.prompts, config.length


def test_a_run_takes_all_prompts_and_resumes_and_a_plan_counts_them(files, tmp_path, capsys):
    own = ["--model", str(files / "model"), "--text", str(files / "own.txt")]
    command = ["run", "gu/norms", *own, "--out", str(tmp_path / "out")]
    for again in (command, command, ["run", str(tmp_path / "out")]):
        assert cli.main(again) == 0
        assert sizes(tmp_path / "out") == (4, 20)
    assert cli.main(["report", str(tmp_path / "out")]) == 0
    capsys.readouterr()
    assert cli.main(["plan", "gu/norms", *own]) == 0
    assert "4 of 20 tokens" in capsys.readouterr().out
    assert cli.main(["run", "gu/norms", *own, "--length", "28", "--out", str(tmp_path / "longer")]) == 0
    assert sizes(tmp_path / "longer") == (2, 28)
    assert cli.main(["run", "gu/norms", *own, "--length", "28", "--prompts=3", "--out", str(tmp_path / "no")]) == 2
    assert "3 passages of length 28" in capsys.readouterr().err
