"""A sweep into an object store: a real S3 protocol on this machine, with the numbers and the guarantees of a folder."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.config_files.locations import location
from sinkjax.errors import SinkjaxError
from tests.sweeps.cases import LENGTHS, model_of, prompts

pytestmark = pytest.mark.processes


def edits():
    return [sinkjax.mask_key(key, layers=layer) for key in (0, 1) for layer in range(3)]


@pytest.fixture
def asked(tiny_config, tiny_params):
    """What is swept: the same in a folder and in an object store."""
    return {"model": model_of(tiny_config, tiny_params), "tokens": prompts(tiny_config), "edits": edits(), "lengths": LENGTHS}


def test_an_object_store_holds_what_a_folder_holds_and_computes_nothing_twice(bucket, asked, tmp_path, monkeypatch):
    here = sinkjax.sweep(**asked, out=tmp_path / "x.zarr", progress=False)
    there = sinkjax.sweep(**asked, out=f"{bucket}/a.zarr", progress=False)
    xarray.testing.assert_identical(here.load(), there.load())
    files = sorted(
        path.relative_to(tmp_path / "x.zarr").as_posix() for path in (tmp_path / "x.zarr").rglob("*") if path.is_file()
    )
    root = location(f"{bucket}/a.zarr")
    assert sorted(name.partition("a.zarr/")[2] for name in root.fs.find(root.path)) == files
    monkeypatch.setattr("sinkjax.sweeps.calls.baseline", None)  # nothing is left to compute
    again = sinkjax.sweep(**asked, out=f"{bucket}/a.zarr", progress=False)
    xarray.testing.assert_identical(again.load(), here.load())


SHARE = """
import sys, time
import sinkjax
from sinkjax.sweeps import run
from tests.sweeps import test_object_store as test
from tests.sweeps.cases import LENGTHS, model_of, prompts
model = sinkjax.load(sys.argv[2])
model.source.clear()
compute = run.compute
def slow(*arguments):
    for entry in compute(*arguments):
        print("computing", entry[0], entry[1].edits, flush=True)
        time.sleep(float(sys.argv[3]))
        yield entry
run.compute = slow
tokens = prompts(model.config)
print("ready", flush=True)
input()
sinkjax.sweep(model, tokens, test.edits(), lengths=LENGTHS, out=sys.argv[1], progress=False)
"""


def begin(*arguments: object) -> subprocess.Popen[str]:
    """A process that fills a store once it is let go; it prints each call that it computes."""
    line, pipes = [sys.executable, "-c", SHARE, *map(str, arguments)], ("stdin", "stdout", "stderr")
    own = {"text": True, "env": os.environ | {"PYTHONPATH": "."}}
    return subprocess.Popen(line, **dict.fromkeys(pipes, subprocess.PIPE), **own)


def let_go(*processes: subprocess.Popen[str]) -> None:
    """Let processes fill their stores once all are ready, however long a busy machine takes to start them."""
    for process in processes:
        assert process.stdout.readline() == "ready\n", process.communicate()
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()


@pytest.fixture(scope="module")
def saved(tiny_config, tiny_params, tmp_path_factory):
    """The model as a file, and what one process alone finds.

    This process is no measure of bits: on one machine its program differed in the last one from that of a process which took
    it from the cache of compiled programs.
    """
    folder = tmp_path_factory.mktemp("alone")
    model = model_of(tiny_config, tiny_params)
    sinkjax.save(model, folder / "model")
    process = begin(folder / "alone.zarr", folder / "model", 0)
    let_go(process)
    said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    alone = xarray.open_zarr(folder / "alone.zarr", consolidated=True).attention_received.load()
    here = sinkjax.sweep(model, prompts(tiny_config), edits(), lengths=LENGTHS, progress=False)
    np.testing.assert_allclose(alone, here.attention_received, rtol=1e-4, atol=1e-6)
    return folder / "model", alone


def assert_same(url, alone):
    data = xarray.open_zarr(url, consolidated=True)
    np.testing.assert_array_equal(data.attention_received, alone)
    root = location(url)
    assert not [name for name in root.fs.find("results") if ".calls" in name]


def test_what_a_killed_process_had_begun_is_computed_at_once(bucket, saved):
    folder, alone = saved
    first = begin(f"{bucket}/killed.zarr", folder, 30)
    let_go(first)
    assert "computing" in first.stdout.readline()
    first.kill()
    second = begin(f"{bucket}/killed.zarr", folder, 0)
    let_go(second)
    said = second.communicate(timeout=120)
    assert second.returncode == 0, said
    assert_same(f"{bucket}/killed.zarr", alone)


def test_no_answer_is_no_damage(bucket, asked, monkeypatch):
    sinkjax.sweep(**asked, out=f"{bucket}/silent.zarr", progress=False)
    root = location(f"{bucket}/silent.zarr")
    cat = root.fs.cat_file

    def slow(path, *args):
        if path.endswith("/0.0.0.0.0") or "attention" in path:
            raise TimeoutError("no answer")
        return cat(path, *args)

    monkeypatch.setattr(root.fs, "cat_file", slow)
    with pytest.raises(SinkjaxError, match=r"cannot use s3://results/silent\.zarr: no answer"):
        sinkjax.sweep(**asked, out=f"{bucket}/silent.zarr", progress=False)
