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

from sinkjax.config_files.places import place
from sinkjax.errors import SinkjaxError, Unavailable
from sinkjax.tasks import load_runs, train
from sinkjax.train.mirror import LISTED, Mirror
from tests.train import linear

pytestmark = pytest.mark.processes
CONFIG = linear.Linear(seeds=2, steps=600, learning_rates=(5e-4,), eval_every=20, batch=32, eval_batch=16)


@pytest.fixture(scope="module", autouse=True)
def _registered():
    linear.register()


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The same training in a folder of this machine."""
    return train(CONFIG, tmp_path_factory.mktemp("train") / "alone", progress=False)


def names(url):
    root = place(url)
    return {name.partition(f"{root.name}/")[2] for name in root.fs.find(root.path)}


def interrupted(mirror, monkeypatch):
    """A push that ends where the list of what it copied would be written."""
    new = sorted(mirror._here())

    def dumps(content):
        if content["files"] == new:
            raise TypeError
        return json.JSONEncoder().encode(content)

    with monkeypatch.context() as patch:
        patch.setattr("sinkjax.train.mirror.json.dumps", dumps)
        with pytest.raises(TypeError):
            mirror.push()


def assert_same(found, expected):
    jax.tree.map(np.testing.assert_array_equal, found.params, expected.params)
    assert found.runs == expected.runs
    log = [json.loads(line) for line in (found.folder / "log.jsonl").read_text().splitlines()]
    assert log == [json.loads(line) for line in (expected.folder / "log.jsonl").read_text().splitlines()]


def test_a_training_into_an_object_store_has_the_bits_of_a_folder(bucket, alone):
    url = f"{bucket}/trained"
    assert_same(train(CONFIG, url, progress=False), alone)
    found = load_runs(url)
    assert_same(found, alone)
    assert found.name == url
    local = {path.relative_to(found.folder).as_posix() for path in found.folder.rglob("*") if path.is_file()}
    assert names(url) - {LISTED} == local > {"config.yaml", "log.jsonl", "summary.json"}


KILLED = """
import sys
import time
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


def test_a_killed_training_goes_on_elsewhere_from_what_was_copied(bucket, alone, monkeypatch):
    url = f"{bucket}/killed"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen([sys.executable, "-c", KILLED, url], stdout=subprocess.PIPE, env=environment) as process:
        for _ in range(3):
            assert process.stdout.readline() == b"copied\n"
        process.kill()
    said = []
    assert_same(train(CONFIG, url, said.append, progress=False), alone)
    step = int(next(line for line in said if "from step" in line).rpartition(" ")[2])
    assert 20 <= step < 600


def test_of_two_that_train_in_one_place_the_first_one_ends(bucket):
    where = place(f"{bucket}/taken")
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


def test_what_is_there_is_named_by_its_url(bucket):
    url = f"{bucket}/other"
    train(linear.Linear(steps=20, eval_every=20, batch=8, eval_batch=8), url, progress=False)
    with pytest.raises(SinkjaxError, match=rf"^{url} .*\(steps was 20, now 40"):
        train(linear.Linear(steps=40, eval_every=20, batch=8, eval_batch=8), url, progress=False)
    with pytest.raises(SinkjaxError, match=rf"^{bucket}/nothing is not "):
        load_runs(f"{bucket}/nothing")


def test_what_is_no_training_is_not_overwritten(bucket):
    where = place(f"{bucket}/study")
    (where / "config.yaml").write_bytes(b"experiment: kiya/mask\n")
    with pytest.raises(SinkjaxError, match=f"^{bucket}/study/config.yaml is not "):
        train(CONFIG, f"{bucket}/study", progress=False)
    (place(f"{bucket}/mine") / "a").write_bytes(b"1")
    with pytest.raises(SinkjaxError, match=f"^{bucket}/mine exists "):
        train(CONFIG, f"{bucket}/mine", progress=False)
    assert names(f"{bucket}/study") == {"config.yaml"}
    assert names(f"{bucket}/mine") == {"a"}


def test_a_training_that_somebody_copied_there_is_one(bucket, alone):
    copied = place(f"{bucket}/copied")
    for file in filter(Path.is_file, alone.folder.rglob("*")):
        copied.fs.put_file(str(file), (copied / file.relative_to(alone.folder).as_posix()).path)
    assert_same(load_runs(f"{bucket}/copied"), alone)
    assert_same(train(CONFIG, f"{bucket}/copied", progress=False), alone)


@pytest.mark.parametrize("listed", ['["../x"]', '["/x"]', '["a/../../x"]', '["a\\\\..\\\\x"]', '["C:/x"]', "[1]", "1", "{", None])
def test_a_list_that_names_what_is_elsewhere_is_refused(bucket, listed):
    where = place(f"{bucket}/list")
    content = '["config.yaml"]' if listed is None else f'{{"writer": "1", "files": {listed}}}'  # of an earlier version
    (where / LISTED).write_bytes(content.encode())
    with pytest.raises(SinkjaxError, match=r"\.files\.json has changed"):
        load_runs(str(where))


def test_a_kill_within_the_first_copy_leaves_nothing_that_counts(bucket, monkeypatch):
    where = place(f"{bucket}/first")
    mirror = Mirror(where)
    for name in ("config.yaml", "log.jsonl"):
        (mirror.folder / name).write_text("1")
    interrupted(mirror, monkeypatch)
    again = Mirror(where)
    again.pull()
    assert not list(again.folder.iterdir())
    (again.folder / "config.yaml").write_text("2")
    again.push()
    assert names(f"{bucket}/first") == {LISTED, "config.yaml"}  # what the kill left is gone


def test_a_kill_within_the_first_copy_leaves_a_training_that_somebody_put_there(bucket, monkeypatch):
    where = place(f"{bucket}/put")
    for name in ("config.yaml", "log.jsonl", "checkpoints/1/state"):
        (where / name).write_bytes(b"1")
    first = Mirror(where)
    first.pull()
    (first.folder / "checkpoints" / "1").rename(first.folder / "checkpoints" / "2")
    interrupted(first, monkeypatch)
    second = Mirror(where)
    second.pull()
    assert {path.relative_to(second.folder).as_posix() for path in second.folder.rglob("*") if path.is_file()} == {
        *("config.yaml", "log.jsonl", "checkpoints/1/state")
    }


def test_what_is_no_part_of_the_training_stays(bucket):
    where = place(f"{bucket}/beside")
    mirror = Mirror(where)
    (mirror.folder / "config.yaml").write_text("1")
    mirror.push()
    for name in ("notes.txt", "sweep.zarr/.zattrs"):
        (where / name).write_bytes(b"1")
    (where / "models" / "run-000" / "config.json").write_bytes(b"1")  # of an earlier training
    mirror.push()
    assert names(f"{bucket}/beside") == {*(LISTED, "config.yaml", "notes.txt", "sweep.zarr/.zattrs")}


def test_who_is_overtaken_while_it_copies_stops(bucket, monkeypatch):
    where = place(f"{bucket}/slow")
    mirror = Mirror(where)
    for name in ("a", "b", "c"):
        (mirror.folder / name).write_text("1")
    sent, put = [], mirror.place.fs.put_file

    def put_file(source, target):
        sent.append(target)
        put(source, target)
        (where / LISTED).write_bytes(b'{"writer": "another", "files": []}')

    monkeypatch.setattr(mirror.place.fs, "put_file", put_file)
    with pytest.raises(Unavailable, match="another process is also training"):
        mirror.push()
    assert len(sent) == 1


def test_a_copy_that_a_kill_interrupts_leaves_the_one_before(bucket, monkeypatch):
    where = place(f"{bucket}/half")
    first = Mirror(where)
    (first.folder / "checkpoints" / "1").mkdir(parents=True)
    (first.folder / "checkpoints" / "1" / "state").write_text("one")
    (first.folder / "log.jsonl").write_text("a\n")
    first.push()
    (first.folder / "checkpoints" / "1").rename(first.folder / "checkpoints" / "2")
    with (first.folder / "log.jsonl").open("a") as log:
        log.write("b\n")
    interrupted(first, monkeypatch)
    second = Mirror(where)
    second.pull()
    assert (second.folder / "checkpoints" / "1" / "state").read_text() == "one"
    assert not (second.folder / "checkpoints" / "2").exists()
    assert (second.folder / "log.jsonl").read_text().startswith("a\n")
    first.push()
    assert names(f"{bucket}/half") == {LISTED, "checkpoints/2/state", "log.jsonl"}


def test_what_did_not_change_is_not_copied_again(bucket, monkeypatch):
    mirror = Mirror(place(f"{bucket}/same"))
    (mirror.folder / "a").write_text("1")
    mirror.push()
    (mirror.folder / "b").write_text("2")
    sent = []
    put = mirror.place.fs.put_file
    monkeypatch.setattr(mirror.place.fs, "put_file", lambda *args: sent.append(args[1]) or put(*args))
    mirror.push()
    assert [name.rpartition("/")[2] for name in sent] == ["b"]
