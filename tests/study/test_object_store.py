"""Studies into an object store: a real S3 protocol on this machine, with the files of a folder."""

from __future__ import annotations

import pytest

from sinkjax.cli.main import main
from sinkjax.config_files.places import place
from sinkjax.errors import SinkjaxError
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
    root = place(url)
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
    (place(there) / "summary.csv").unlink()
    assert main(["report", there]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{there}/report.html"
    assert objects(there)["summary.csv"] == files(here)["summary.csv"]
    store = next(path for path in place(there).iterdir() if path.name.endswith(".zarr"))
    chunk = next(path for path in store.rglob("*") if path.is_file() and not path.name.startswith("."))
    chunk.write_bytes(b"1")
    assert main(["run", there]) == 0
    assert "computing only that again" in capsys.readouterr().err
    assert objects(there)["summary.csv"] == files(here)["summary.csv"]


def test_a_sweep_and_its_store_by_url(bucket, tmp_path):
    url, asked = f"{bucket}/mask", tmp_path / "mask.yaml"
    asked.write_text("experiment: sweep\nmodel: mini-softmax\nprompts: 2\nprobe: [resid_max]\nedits: [{mask_key: {key: 0}}]\n")
    assert main(["sweep", str(asked), "--out", f"file://{tmp_path}/here"]) == 0
    assert (tmp_path / "here" / "report.html").is_file()
    assert main(["sweep", str(asked), "--out", url]) == 0
    store = next(path for path in place(url).iterdir() if path.name == "sweep.zarr")
    assert main(["report", str(store), str(store)]) == 0
    assert place(f"{url}/sweep-and-mask-sweep/report.html").is_file()


def test_what_lies_there_is_not_overwritten(bucket, there):
    with pytest.raises(SinkjaxError, match="prompts was 2, now 3"):
        run("gu/angles", there, **{**FIELDS, "prompts": 3})
    (place(f"{bucket}/mine") / "a").write_bytes(b"1")
    with pytest.raises(SinkjaxError, match=r"s3://results/mine exists with other content"):
        run("gu/angles", f"{bucket}/mine", **FIELDS)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run", "gu/angles", *SMALL, "--out", "nothing://x/y"], "cannot use nothing://"),
        (["run", "gu/angles", *SMALL, "--out", "s3://no-such-bucket/y"], "s3://no-such-bucket"),
        (["run", "gu/angles", "--checkpoints", "s3://results/series"], "results/series is a URL"),
        (["run", "gu/angles", "--model", "s3://results/model"], "s3://results/model is a URL"),
        (["run", "s3://results/nothing"], "s3://results/nothing"),
        (["report", "s3://results/nothing"], "store s3://results/nothing"),
    ],
)
def test_wrong_urls_are_refused_in_one_sentence(bucket, words, sentence, capsys):
    assert main(words) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert "Traceback" not in said
