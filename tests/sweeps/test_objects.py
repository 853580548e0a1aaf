"""Calls are immutable objects that become arrays: nothing is lost wherever a process ends, whoever else does the same."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import xarray
from safetensors import numpy as safetensors

from sinkjax.config_files import files
from sinkjax.errors import SinkjaxError
from sinkjax.sweeps import arrays
from sinkjax.sweeps import store as stores
from sinkjax.sweeps.header import CALLS, HEADER, Header, unsealed
from sinkjax.sweeps.schedule import Chunk, Schedule
from sinkjax.sweeps.store import Store, begin

E, B, BLOCK, GROUP = 8, 5, 2, 3  # the last chunk of edits and the last block of prompts are smaller than others
WIDE = (Chunk(0, (0, 3, 6), 0), Chunk(0, (5,), 1), Chunk(1, (7, 1), 0), Chunk(1, (2, 4), 2))
VARIABLES = {
    "a": (("edit", "prompt", "key"), (E, B, 7), np.dtype("float32")),
    "n": (("edit", "prompt"), (E, B), np.dtype("int32")),
}
FIXED = {"edit": (("edit",), np.array([f"edit {number}" for number in range(E)]))}
RNG = np.random.default_rng(0)
VALUES = {"a": RNG.standard_normal((E, B, 7), np.float32), "n": RNG.integers(0, 99, (E, B), np.int32)}
CALLS_OF_ALL = [(block, chunk) for block in range(3) for chunk in WIDE]


class Killed(BaseException):
    """As a kill, it is caught by nobody."""


def header(identity: dict, variables: dict = VARIABLES, prompts: int = BLOCK, fixed: dict = FIXED) -> Header:
    return Header.of_sweep(identity, {"devices": "1 x cpu"}, Schedule(prompts, (3, 2), WIDE), {}, variables, fixed)


def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: int) -> Store:
    """A new store with chunks of this many edits."""
    monkeypatch.setattr("sinkjax.sweeps.header.CHUNK_BYTES", group * BLOCK * 7 * 4)
    return begin(tmp_path / "x.zarr", {"number": 1}, lambda: header({"number": 1}))


@pytest.fixture(params=[GROUP, 1], ids=["chunks of several edits", "chunks of one"])
def store(request, tmp_path, monkeypatch):
    return begun(tmp_path, monkeypatch, request.param)


@pytest.fixture
def grouped(tmp_path, monkeypatch):
    return begun(tmp_path, monkeypatch, GROUP)


@pytest.fixture
def apart(tmp_path, monkeypatch):
    return begun(tmp_path, monkeypatch, 1)


def write(store: Store, block: int, chunk: Chunk) -> None:
    size = store.schedule.prompt_block
    rows = np.ix_(chunk.edits, range(block * size, min(B, (block + 1) * size)))
    store.write(chunk, block, {name: array[rows] for name, array in VALUES.items()})


def fill(store: Store) -> None:
    """What a process does: the calls that are left, and the arrays at the end."""
    while not store.finished:
        for block, chunk in store.left():
            write(store, block, chunk)
        store.compact(FIXED)


def assert_whole(path: Path) -> None:
    found = xarray.open_zarr(path, chunks=None)
    for name, array in VALUES.items():
        np.testing.assert_array_equal(found[name], array)
    store = Store(path)
    assert store.finished
    assert not store.faults
    assert not [file.name for file in path.rglob(".*") if file.suffix == ".new" or file.name == CALLS]


def before(original: Callable, note: Callable) -> Callable:
    """A function that calls `note` with its arguments first."""

    def noted(*arguments, **options):
        note(*arguments)
        return original(*arguments, **options)

    return noted


def every(monkeypatch: pytest.MonkeyPatch, act: Callable[[int], None]) -> None:
    """Call `act` with its number before each write of a file, its new name, and each removal."""
    steps = itertools.count()
    for of, name in ((files.os, "link"), (Path, "replace"), (Path, "write_bytes"), (Path, "unlink"), (stores, "remove")):
        monkeypatch.setattr(of, name, before(getattr(of, name), lambda *_: act(next(steps))))


def test_chunks_of_another_process_are_checked_before_they_are_put_in_place(apart, capsys):
    for block, chunk in CALLS_OF_ALL:
        write(apart, block, chunk)
    other, hurt = Store(apart.path), apart.read(WIDE[2], 1)["files"]["a/7.1.0"][0]
    content = bytearray((apart.path / CALLS / hurt).read_bytes())
    content[9] ^= 1
    (apart.path / CALLS / hurt).write_bytes(content)
    other.compact(FIXED)
    assert not other.finished
    assert other.left() == [(1, WIDE[2])]
    assert "edits 7, 1 has changed" in capsys.readouterr().err
    fill(other)
    assert_whole(apart.path)


@pytest.mark.parametrize("checksum", ["zlib", "own"])
def test_a_finished_store_of_an_earlier_version_is_checked_and_mended(apart, checksum):
    fill(apart)
    if checksum == "zlib":
        sums = {name: zlib.crc32((apart.path / name).read_bytes()) for name in apart.header.sums}
        old = Header(apart.header.metadata, sums).files()
        for name in (HEADER, arrays.METADATA):
            (apart.path / name).write_bytes(old[name])
    assert_whole(apart.path)
    file = apart.path / "a" / "3.0.0"
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    hurt = Store(apart.path)
    assert [*hurt.faults] == ["a/3.0.0"]
    fill(begin(apart.path, {"number": 1}, lambda: pytest.fail("there is a header")))
    assert_whole(apart.path)


def test_an_object_says_what_it_is_of(grouped):
    store = grouped
    write(store, 1, WIDE[2])
    [file] = (store.path / CALLS).iterdir()
    content = safetensors.load(unsealed(file.read_bytes()))
    assert content[".call"].tolist() == [BLOCK, 1, 7, 1]
    np.testing.assert_array_equal(content["n"], VALUES["n"][[7, 1], 2:4])


@pytest.mark.parametrize("moment", range(0, 95, 3))
def test_a_process_that_ends_anywhere_loses_at_most_the_call_under_way(store, tmp_path, monkeypatch, moment):
    def end(number):
        if number == moment:
            raise Killed

    with monkeypatch.context() as patch:
        every(patch, end)
        with pytest.raises(Killed):
            fill(store)
    left = Store(store.path)
    assert not left.faults
    assert (left.done >= store.done).all()
    assert left.done.sum() <= store.done.sum() + max(len(chunk.edits) for chunk in WIDE)  # killed after an object had its name
    fill(left)
    assert_whole(store.path)


@pytest.mark.parametrize("moment", [-1, *range(0, 60, 4)])
def test_two_that_finish_at_one_time_end_with_one_sound_store(store, monkeypatch, moment):
    for block, chunk in CALLS_OF_ALL:
        write(store, block, chunk)
    other = Store(store.path)

    def meanwhile(number):
        if number == moment:
            moments.undo()
            fill(other)

    with monkeypatch.context() as moments:
        every(moments, meanwhile)
        fill(store)
    assert other.finished == (moment >= 0)  # it did come in between
    assert_whole(store.path)


def test_a_header_that_was_lost_is_made_again_for_its_objects_only(store):
    write(store, 0, WIDE[0])
    for lose in (lambda file: file.unlink(), lambda file: file.write_bytes(file.read_bytes()[:-20])):
        lose(store.path / HEADER)
        with pytest.raises(SinkjaxError, match="its metadata is missing"):
            Store(store.path)
        with pytest.raises(SinkjaxError, match="is damaged"):
            begin(store.path, {"number": 2}, lambda: header({"number": 2}))
        again = begin(store.path, {"number": 1}, lambda: header({"number": 1}))
        assert again.done.sum() == len(WIDE[0].edits)
    fill(again)
    assert_whole(store.path)


def test_of_two_that_begin_at_once_the_first_header_stays(tmp_path):
    first = begin(tmp_path / "x.zarr", {"number": 1}, lambda: header({"number": 1}))
    second = begin(tmp_path / "x.zarr", {"number": 1}, lambda: header({"number": 1}, prompts=1))
    assert second.schedule == first.schedule
    assert first.new > second.new

    def late() -> Header:
        begin(tmp_path / "y.zarr", {"number": 1}, lambda: header({"number": 1}))
        return header({"number": 2})

    with pytest.raises(SinkjaxError, match="contains another sweep"):
        begin(tmp_path / "y.zarr", {"number": 2}, late)


def test_a_header_that_comes_while_one_looks_is_read_and_not_removed(tmp_path, monkeypatch):
    path, parsed = tmp_path / "x.zarr", Header._parsed

    def late(*arguments):
        monkeypatch.undo()
        write(begin(path, {"number": 1}, lambda: header({"number": 1})), 0, WIDE[0])

    monkeypatch.setattr(Header, "_parsed", late)
    store = begin(path, {"number": 1}, lambda: pytest.fail("there is a header"))
    assert parsed(path, HEADER) is not None
    assert store.done.sum() == len(WIDE[0].edits)
