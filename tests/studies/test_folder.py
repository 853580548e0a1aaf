"""Results are sent as a zip: a study in YAML comes along, and one in Python is a program that nothing starts unasked."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest

from sinkjax.cli import main as cli
from sinkjax.errors import SinkjaxError
from sinkjax.studies.folder import unpack
from sinkjax.studies.registry import choose
from tests.studies.test_add_a_study import OPTIONS, example

__all__ = ["example"]


@pytest.fixture(params=["yaml", "py"])
def shared(request, example: Path, tmp_path: Path) -> tuple[Path, str]:
    """A zip of a run of an own study whose file is gone, and the suffix of that file."""
    mine = tmp_path / "mine"
    mine.mkdir()
    study = shutil.copy(example / f"my_study.{request.param}", mine)
    out = tmp_path / "lowered"
    model = ["--model", str(example / "model"), "--text", str(example / "text.txt")]
    assert cli.main(["run", str(study), *model, *OPTIONS, "--out", str(out)]) == 0
    there = tmp_path / "there"
    there.mkdir()
    shutil.make_archive(str(there / "sent"), "zip", tmp_path, "lowered")
    shutil.rmtree(mine)
    shutil.rmtree(out)
    return there / "sent.zip", request.param


def test_a_colleague_rebuilds_the_page_without_the_model(shared, capsys):
    archive, suffix = shared
    code = cli.main(["report", str(archive)])
    folder = archive.with_suffix("")  # of the zip's name, whatever that of the packed folder was
    if suffix == "py":
        assert code == 2
        said = " ".join(capsys.readouterr().err.split())
        assert f"is a program and not a file of this machine: read {folder}/study.py, and then use" in said
        assert cli.main(["report", str(folder), "--study", str(folder / "study.py")]) == 0
    else:
        assert code == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(folder / "report.html")
    assert cli.main(["report", str(archive)]) == 2  # unpacked already
    assert "already exists" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "words"), [(b"no zip", "is not a complete zip file"), (None, "contains no results: it has no config.yaml")]
)
def test_what_holds_no_results_is_refused_and_leaves_nothing(content, words, tmp_path):
    archive = tmp_path / "sent.zip"
    if content is None:
        with zipfile.ZipFile(archive, "w") as packed:
            packed.writestr("a/b.txt", "text")
    else:
        archive.write_bytes(content)
    with pytest.raises(SinkjaxError, match=words):
        unpack(archive)
    assert [path.name for path in tmp_path.iterdir()] == ["sent.zip"]


@pytest.mark.parametrize("named", ["results/study.py", "{folder}/study.py"])
def test_results_cannot_name_a_program_of_their_own(named, tmp_path, monkeypatch):
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "study.py").write_text("raise SystemExit('it ran')\n")
    (folder / "config.yaml").write_text(f"experiment: {named.format(folder=folder)}\nmodel: mini-sink\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SinkjaxError, match="is a program and not a file of this machine"):
        choose(str(folder))


def test_no_name_in_a_zip_leaves_its_folder(tmp_path):
    with zipfile.ZipFile(tmp_path / "sent.zip", "w") as packed:
        packed.writestr("config.yaml", "experiment: kiya/mask\n")
        packed.writestr("../outside.txt", "text")
    assert unpack(tmp_path / "sent.zip") == tmp_path / "sent"
    assert not (tmp_path.parent / "outside.txt").exists()
    assert (tmp_path / "sent" / "outside.txt").is_file()
