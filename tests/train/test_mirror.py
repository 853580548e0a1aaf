"""Trainings into an object store: a real S3 protocol on this machine, with the bits of a folder, also after a kill."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from sinkjax.config_files.locations import location
from sinkjax.errors import SinkjaxError
from sinkjax.tasks import load_runs, train
from sinkjax.train.mirror import LISTED, Mirror
from tests.train import linear

pytestmark = pytest.mark.processes
CONFIG = linear.Linear(seeds=2, steps=600, learning_rates=(5e-4,), eval_every=20, batch=32, eval_batch=16)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The same training in a folder of this machine."""
    linear.register()
    return train(CONFIG, tmp_path_factory.mktemp("train") / "alone", progress=False)


def names(where):
    return {name.partition(f"{where.name}/")[2] for name in where.fs.find(where.path)}


def interrupted(mirror, monkeypatch):
    """A push that ends where the list of what it copied would be written."""
    complete = sorted(mirror._files())

    def dumps(content):
        if content["files"] == complete:
            raise TypeError
        return json.JSONEncoder().encode(content)

    with monkeypatch.context() as patch:
        patch.setattr("sinkjax.train.mirror.json.dumps", dumps)
        with pytest.raises(TypeError):
            mirror.push()


def assert_same(trained, expected):
    jax.tree.map(np.testing.assert_array_equal, trained.params, expected.params)
    assert trained.runs == expected.runs
    assert (trained.folder / "log.jsonl").read_bytes() == (expected.folder / "log.jsonl").read_bytes()


KILLED = """
import sys
from sinkjax.tasks import train
from sinkjax.train import loop
from sinkjax.train.mirror import Mirror
from tests.train import linear, test_mirror
linear.register()
loop.COPYING = 0
push = Mirror.push
def told(mirror):
    push(mirror)
    print("copied", flush=True)
Mirror.push = told
train(test_mirror.CONFIG, sys.argv[1], save_every=0, progress=False)
"""


def test_a_killed_training_goes_on_elsewhere_from_what_was_copied_to_the_bits_of_a_folder(bucket, alone):
    url, said = f"{bucket}/killed", []
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen([sys.executable, "-c", KILLED, url], stdout=subprocess.PIPE, env=environment) as process:
        for _ in range(3):
            assert process.stdout.readline() == b"copied\n"
        process.kill()
    assert_same(train(CONFIG, url, said.append, progress=False), alone)
    step = int(next(line for line in said if "from step" in line).rpartition(" ")[2])
    assert 20 <= step < 600
    again = load_runs(url)
    assert_same(again, alone)
    assert again.name == url
    local = {path.relative_to(again.folder).as_posix() for path in again.folder.rglob("*") if path.is_file()}
    assert names(location(url)) - {LISTED} == local > {"config.yaml", "log.jsonl", "summary.json"}


def test_other_content_is_refused_by_its_url_and_not_overwritten(bucket, alone):
    for name, file, content, words in (
        ("study", "config.yaml", b"experiment: kiya/mask\n", "/config.yaml is not "),
        ("mine", "a", b"1", " exists "),
    ):
        where = location(f"{bucket}/{name}")
        (where / file).write_bytes(content)
        with pytest.raises(SinkjaxError, match=f"^{where}{words}"):
            train(CONFIG, str(where), progress=False)
        assert names(where) == {file}
    copied = location(f"{bucket}/copied")  # a training that somebody copied there is one
    for file in filter(Path.is_file, alone.folder.rglob("*")):
        copied.fs.put_file(str(file), (copied / file.relative_to(alone.folder).as_posix()).path)
    assert_same(load_runs(str(copied)), alone)
    assert_same(train(CONFIG, str(copied), progress=False), alone)


def test_of_two_that_train_in_one_place_the_first_one_ends(bucket):
    where = location(f"{bucket}/taken")
    first, second = Mirror(where), Mirror(where)
    for mirror, content in ((first, "1"), (second, "2")):
        mirror.pull()
        (mirror.folder / "a").write_text(content)
        mirror.push()
        (mirror.folder / "a").write_text(f"{content} and more")
    with pytest.raises(SinkjaxError, match=f"another process .*{where}"):
        first.push()
    assert (where / "a").read_bytes() == b"2"
    second.push()
    third = Mirror(where)
    third.pull()
    assert (third.folder / "a").read_text() == "2 and more"


@pytest.mark.parametrize("listed", ['["../x"]', '["/x"]', '["a/../../x"]', '["a\\\\..\\\\x"]', '["C:/x"]', "[1]", "{"])
def test_a_list_that_names_what_is_elsewhere_is_refused(bucket, listed):
    where = location(f"{bucket}/list")
    (where / LISTED).write_bytes(f'{{"writer": "1", "files": {listed}}}'.encode())
    with pytest.raises(SinkjaxError, match=r"\.files\.json has changed"):
        load_runs(str(where))


@pytest.mark.parametrize("before", [(), ("config.yaml", "log.jsonl", "checkpoints/1/state")])
def test_a_copy_that_a_kill_interrupts_leaves_the_one_before(bucket, monkeypatch, before):
    """before: what somebody uploaded, or nothing."""
    where = location(f"{bucket}/half{len(before)}")
    for name in (*before, *["notes.txt"] * bool(before)):
        (where / name).write_bytes(b"1")
    first, second = Mirror(where), Mirror(where)
    first.pull()
    (first.folder / "config.yaml").write_text("1")
    if before:
        (first.folder / "checkpoints" / "1").rename(first.folder / "checkpoints" / "2")
    interrupted(first, monkeypatch)
    second.pull()
    found = {path.relative_to(second.folder).as_posix() for path in second.folder.rglob("*") if path.is_file()}
    assert found == {*before, *["notes.txt"] * bool(before)}
    if before:
        sent, put = [], first.place.fs.put_file
        monkeypatch.setattr(first.place.fs, "put_file", lambda *args: sent.append(args[1]) or put(*args))
        first.push()
        assert names(where) == {LISTED, "config.yaml", "log.jsonl", "checkpoints/2/state", "notes.txt"}
        sent.clear()
        (first.folder / "log.jsonl").write_text("a")
        first.push()
        assert [name.rpartition("/")[2] for name in sent] == ["log.jsonl"]  # the others did not change
