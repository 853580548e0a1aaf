"""Calls of any edits become chunks of neighbours: nothing is lost wherever a process ends, and each call writes one file."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import numpy as np
import pytest
import xarray

from sinkjax.errors import SinkjaxError
from sinkjax.sweeps import chunks
from sinkjax.sweeps.schedule import Chunk, Schedule
from sinkjax.sweeps.store import Store, create

E, B, BLOCK, GROUP = 8, 5, 2, 3  # the last chunk of edits and the last block of prompts are smaller than others
WIDE = (Chunk(0, (0, 3, 6), 0), Chunk(0, (5,), 1), Chunk(1, (7, 1), 0), Chunk(1, (2, 4), 2))
VARIABLES = {
    "a": (("edit", "prompt", "key"), (E, B, 7), np.dtype("float32")),
    "n": (("edit", "prompt"), (E, B), np.dtype("int32")),
}
RNG = np.random.default_rng(0)
VALUES = {"a": RNG.standard_normal((E, B, 7), np.float32), "n": RNG.integers(0, 99, (E, B), np.int32)}
CALLS = [(block, chunk) for block in range(3) for chunk in WIDE]


class Killed(BaseException):
    """As a kill, it is caught by nobody."""


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setattr("sinkjax.sweeps.store.CHUNK_BYTES", GROUP * BLOCK * 7 * 4)
    coordinates = {"edit": (("edit",), np.array([f"edit {number}" for number in range(E)]))}
    return create(tmp_path / "x.zarr", {}, {"devices": "1 x cpu"}, Schedule(BLOCK, (3, 2), WIDE), {}, VARIABLES, coordinates)


def fill(store: Store) -> None:
    """What a process does: the calls that are left, and packing after each."""
    with store.claims() as claims:
        while not store.packed.all():
            for block, chunk in store.left():
                rows = np.ix_(chunk.edits, range(block * BLOCK, min(B, (block + 1) * BLOCK)))
                store.write(chunk.edits, block, {name: array[rows] for name, array in VALUES.items()})
                store.pack(claims)
            store.pack(claims)


def assert_whole(path: Path) -> None:
    found = xarray.open_zarr(path, chunks=None)
    for name, array in VALUES.items():
        np.testing.assert_array_equal(found[name], array)
    assert Store(path).packed.all()


@pytest.fixture
def written(monkeypatch) -> list[Path]:
    """Files, in the order in which they are written."""
    found, put = [], chunks.put

    def note(file, content):
        found.append(file)
        put(file, content)

    monkeypatch.setattr(chunks, "put", note)
    return found


def test_a_call_writes_one_file_and_a_chunk_one_for_each_variable(store, written):
    fill(store)
    assert_whole(store.path)
    calls = [file.name for file in written if file.parent.name == ".calls"]
    assert sorted(calls) == sorted(f"{block}.{chunk.edits[0]}" for block, chunk in CALLS)
    assert len(written) - len(calls) == 3 * 3 * (len(VARIABLES) + 1)  # chunks of edits, of prompts
    assert len(set(written)) == len(written)
    assert not list((store.path / ".calls").iterdir())


@pytest.mark.parametrize(("of", "step", "moments"), [(chunks, "put", range(39)), (Path, "unlink", range(0, 30, 7))])
def test_a_process_that_ends_anywhere_loses_at_most_the_call_under_way(store, tmp_path, monkeypatch, of, step, moments):
    original = getattr(of, step)
    for moment in moments:
        path = Path(shutil.copytree(store.path, tmp_path / f"{moment}.zarr"))
        begun, steps = Store(path), itertools.count()

        def end(*arguments, moment=moment, steps=steps, **options):
            if next(steps) == moment:
                raise Killed
            return original(*arguments, **options)

        with monkeypatch.context() as patch:
            patch.setattr(of, step, end)
            with pytest.raises(Killed):
                fill(begun)
        left = Store(path)
        assert not left.damage()
        np.testing.assert_array_equal(left.done, begun.done)  # all calls whose file was written, packed or not
        fill(left)
        assert_whole(path)


def test_what_killed_processes_left_goes_when_the_sweep_ends(store):
    fill(store)
    names = {"a": ".0123456789abcdef", "done": ".fedcba9876543210", ".calls": ".0000000000000000"}
    for folder, name in names.items():
        (store.path / folder / name).write_bytes(b"begun")
    store.clear()
    assert not [name for folder, name in names.items() if (store.path / folder / name).exists()]
    assert_whole(store.path)


@pytest.mark.parametrize(
    ("columns", "prompts", "sentence"),
    [
        (2**29 - 4, 1, r"a has 2,147,483,632 bytes for one edit and 1 prompt, and a chunk .* 2,147,483,631: measure it in fewer"),
        (2**28, 2, "for one edit and 2 prompts, .*: take at most 1 at a time, or measure it in fewer layers or positions"),
    ],
)
def test_what_no_chunk_can_hold_is_refused_before_anything_is_there(tmp_path, columns, prompts, sentence):
    variables = VARIABLES | {"a": (("edit", "prompt", "x"), (E, B, columns), np.dtype("float32"))}
    with pytest.raises(SinkjaxError, match=sentence):
        create(tmp_path / "x.zarr", {}, {}, Schedule(prompts, (3, 2), WIDE), {}, variables, {})
    values = np.broadcast_to(np.float32(0), (B, 2**27))
    with pytest.raises(SinkjaxError, match=r"tokens has 2,684,354,560 bytes, .*: take fewer prompts"):
        create(tmp_path / "x.zarr", {}, {}, Schedule(1, (3, 2), WIDE), {}, VARIABLES, {"tokens": (("prompt", "x"), values)})
    assert not list(tmp_path.iterdir())


def test_a_chunk_of_the_largest_size_is_taken_by_the_codec():
    from numcodecs import blosc

    assert chunks.LARGEST == blosc.MAX_BUFFERSIZE


def test_two_that_pack_at_one_time_write_each_chunk_once(store, written):
    first, second = Store(store.path), Store(store.path)
    with first.claims() as ours, second.claims() as theirs:
        for number, (block, chunk) in enumerate(CALLS):
            rows = np.ix_(chunk.edits, range(block * BLOCK, min(B, (block + 1) * BLOCK)))
            (first, second)[number % 2].write(chunk.edits, block, {name: array[rows] for name, array in VALUES.items()})
        for one in (first, second):
            for block in range(3):
                one.look(range(E), block)
        assert ours.take("pack.1.2")  # as if the first one were packing it
        second.pack(theirs)
        assert (~second.packed).sum() == 2
        ours.drop("pack.1.2")
        first.pack(ours)
        second.pack(theirs)
    assert first.packed.all()
    assert second.packed.all()
    assert len(set(written)) == len(written)
    assert_whole(store.path)
