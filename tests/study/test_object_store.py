"""Studies into an object store: a real S3 protocol on this machine, with the files of a folder."""

from __future__ import annotations

import pytest

from sinkjax.cli.main import main
from sinkjax.config_files.locations import location
from sinkjax.study.run import run

pytestmark = pytest.mark.processes
FIELDS = {"model": "mini-softmax", "bos": "model", "prompts": 2}
SMALL = ["--model", "mini-softmax", "--bos", "model", "--prompts", "2"]


def files(folder):
    """File -> content of what a run wrote, its stores aside."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".zarr" not in path.as_posix()
    }


def objects(url):
    """The same of an object store."""
    root = location(url)
    names = (name.partition(f"{root.path.partition('/')[2]}/")[2] for name in root.fs.find(root.path))
    return {name: (root / name).read_bytes() for name in names if ".zarr" not in name}


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "angles"
    run("gu/angles", folder, **FIELDS)
    return folder


@pytest.fixture(scope="module")
def there(bucket):
    assert main(["run", "gu/angles", *SMALL, "--out", f"{bucket}/angles"]) == 0
    return f"{bucket}/angles"


def test_a_run_writes_the_files_of_a_folder(here, there):
    wrote = objects(there)
    assert wrote.keys() == files(here).keys()
    same = [name for name in wrote if name.endswith((".csv", ".json", ".yaml"))]
    assert len(same) >= 3
    assert {name: wrote[name] for name in same} == {name: files(here)[name] for name in same}


def test_what_is_lost_is_made_again(here, there, capsys):
    (location(there) / "summary.csv").unlink()
    assert main(["report", there]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{there}/report.html"
    assert objects(there)["summary.csv"] == files(here)["summary.csv"]
    store = next(path for path in location(there).iterdir() if path.name.endswith(".zarr"))
    chunk = next(path for path in store.rglob("*") if path.is_file() and not path.name.startswith("."))
    chunk.write_bytes(b"1")
    assert main(["run", there]) == 0
    assert "computing only that again" in capsys.readouterr().err
    assert objects(there)["summary.csv"] == files(here)["summary.csv"]
