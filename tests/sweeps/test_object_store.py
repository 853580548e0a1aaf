"""A sweep into an object store: a real S3 protocol on this machine, with the numbers and the guarantees of a folder."""

from __future__ import annotations

import pytest
import xarray

import sinkjax
from sinkjax.config_files.locations import location
from sinkjax.errors import SinkjaxError
from sinkjax.sweeps.store import Store
from tests.sweeps.cases import LENGTHS, interrupted, model_of, prompts

pytestmark = pytest.mark.processes


@pytest.fixture
def asked(tiny_config, tiny_params):
    """What is swept: the same in a folder and in an object store."""
    edits = [sinkjax.mask_key(key, layers=layer) for key in (0, 1) for layer in range(3)]
    return {"model": model_of(tiny_config, tiny_params), "tokens": prompts(tiny_config), "edits": edits, "lengths": LENGTHS}


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


def test_what_was_begun_in_an_object_store_is_resumed(bucket, asked, monkeypatch):
    monkeypatch.setattr("sinkjax.sweeps.plan.TOKENS_PER_CALL", {"cpu": 1})  # a call for each edit
    interrupted(monkeypatch, 3, lambda: sinkjax.sweep(**asked, out=f"{bucket}/begun.zarr", progress=False))
    root = location(f"{bucket}/begun.zarr")
    assert Store(root).done.sum() == 3
    again = sinkjax.sweep(**asked, out=f"{bucket}/begun.zarr", progress=False)
    xarray.testing.assert_equal(again.load(), sinkjax.sweep(**asked, progress=False))
    assert not [name for name in root.fs.find(root.path) if ".calls" in name]


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
