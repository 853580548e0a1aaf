"""Results are sent as a zip: a study in YAML comes along, and one in Python is a program that nothing starts unasked."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from sinkjax.cli import main as cli
from sinkjax.config_files import programs
from tests.study.test_add_a_study import OPTIONS, example
from tests.study.test_programs import TABLE

__all__ = ["example"]


@pytest.fixture(params=["yaml", "py"])
def shared(request, example: Path, tmp_path: Path) -> tuple[Path, str]:
    """A zip of a run of an own study (a table, or a program) whose file is gone, and the suffix of that file."""
    mine = tmp_path / "mine"
    mine.mkdir()
    out = tmp_path / "lowered"
    options = ["--model", str(example / "model"), "--text", str(example / "text.txt"), *OPTIONS]
    if request.param == "py":
        study = Path(shutil.copy(example / "lowered.py", mine))
    else:
        (study := mine / "mine.yaml").write_text(TABLE)
        options = ["--steps", "2"]
    assert cli.main(["run", str(study), *options, "--out", str(out)]) == 0
    there = tmp_path / "there"
    there.mkdir()
    shutil.make_archive(str(there / "sent"), "zip", tmp_path, "lowered")
    shutil.rmtree(mine)
    shutil.rmtree(out)
    return there / "sent.zip", request.param


def test_a_colleague_rebuilds_the_page_without_the_model(shared, monkeypatch, capsys):
    monkeypatch.setattr(programs, "_typed", set())  # as in another process
    monkeypatch.setattr("sinkjax.study.registry._registered", {})
    archive, suffix = shared
    code = cli.main(["report", str(archive)])
    folder = archive.with_suffix("")  # of the zip's name, whatever that of the packed folder was
    assert code == 0
    if suffix == "py":
        assert re.search(rf"is a program, .*read {folder}/study\.py", capsys.readouterr().err)
        assert cli.main(["report", str(folder), "--study", str(folder / "study.py")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(folder / "report.html")
    assert cli.main(["report", str(archive)]) == 2  # unpacked already
    assert "already exists" in capsys.readouterr().err
