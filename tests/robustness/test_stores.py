"""Stores that were damaged, left half-made, or begun by several processes: named in a sentence, mended by the same command."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import xarray
import zarr

import sinkjax
from sinkjax import Probe, SinkjaxError
from sinkjax.studies.calculation import holds, write_whole
from sinkjax.studies.folder import open_store
from sinkjax.sweeps import claims
from sinkjax.sweeps.store import Store
from sinkjax.train.loop import LOCK, alone
from tests.sweeps.cases import LAYERS, LENGTHS, model_of, prompts

PROBE = Probe(attention_received=True, resid_argmax=True, nll=True)
EDITS = [sinkjax.compose(label="no edit"), *(sinkjax.mask_key(0, layers=layer) for layer in range(LAYERS))]
IDENTITY = {"calculation": "squares", "prompts": {"count": 3}}


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-7] ^= 16
    file.write_bytes(content)


def grow(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"\0" * 8)


def swap(file: Path) -> None:
    """Put the chunk of another edit in its place: sound in itself."""
    other = file.with_name(f"1{file.name[1:]}")
    assert other.read_bytes() != file.read_bytes()
    shutil.copy(other, file)


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "missing": (Path.unlink, "is missing"),
    "cut": (cut, "is not what was written"),
    "empty": (empty, "is not what was written"),
    "flipped": (flip, "is not what was written"),
    "grown": (grow, "is not what was written"),
    "swapped": (swap, "is not what was written"),
}
CHUNKS = {"attention_received": "2.0.0.0.0", "nll": "2.0.0", "resid_argmax": "2.0.0.0"}
NOT_SWAPPED = tuple(name for name in DAMAGES if name != "swapped")
METADATA = (".zattrs", ".zgroup", ".zmetadata", ".manifest", "nll/.zarray", "nll/.zattrs", "done/.zarray", "edit/.zarray")


@pytest.fixture(scope="module")
def sweep(tiny_config, tiny_params):
    """The sweep of these tests into a path, a call for each edit, and as many edits in a chunk as bytes allow: one by default."""
    model, tokens = model_of(tiny_config, tiny_params), prompts(tiny_config)

    def run(out: Path | None, chunk_bytes: int = 1, **changes) -> xarray.Dataset:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sinkjax.sweeps.store.CHUNK_BYTES", chunk_bytes)
            patch.setattr("sinkjax.sweeps.plan.TOKENS_PER_CALL", {"cpu": 1})
            arguments = {"edits": EDITS, "probe": PROBE, "lengths": LENGTHS, "progress": False} | changes
            found = sinkjax.sweep(model, tokens, arguments.pop("edits"), out=out, **arguments)
            for name in ("unchanged", "overflowed"):  # said of a result, from counts that the store holds
                del found.attrs[name]
            return found

    return run


@pytest.fixture(scope="module")
def finished(sweep, tmp_path_factory):
    out = tmp_path_factory.mktemp("finished") / "x.zarr"
    sweep(out)
    return out


@pytest.fixture
def store(finished, tmp_path):
    """A copy of a finished store, to be damaged."""
    return Path(shutil.copytree(finished, tmp_path / "x.zarr"))


def files(store: Path) -> dict[str, bytes]:
    return {path.relative_to(store).as_posix(): path.read_bytes() for path in store.rglob("*") if path.is_file()}


def assert_refused(words: str, *calls: Callable[[], object]) -> None:
    """Each call is refused in one sentence that has these words."""
    for call in calls:
        with pytest.raises(SinkjaxError) as refused:
            call()
        assert words in str(refused.value)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", CHUNKS)
def test_a_chunk_is_named_and_only_its_edit_is_computed_again(sweep, store, capsys, name, damage):
    before, written = files(store), {path: path.stat().st_mtime_ns for path in store.rglob("*") if path.is_file()}
    act, words = DAMAGES[damage]
    act(store / name / CHUNKS[name])
    sentence = f"{name} of edit 2 ({EDITS[2].label}) {words}"
    assert_refused(f"is damaged ({sentence}); rerun the command that began it to recompute that", lambda: open_store(store))
    sweep(store)
    assert capsys.readouterr().err == f"{store}: {sentence}; computing only that again\n"
    assert files(store) == before
    changed = {path for path, time in written.items() if path.stat().st_mtime_ns != time}
    assert {path.name[0] for path in changed} == {"2"}
    open_store(store)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_mark_vouches_for_nothing_once_it_is_damaged(sweep, store, damage):
    before = files(store)
    DAMAGES[damage][0](store / "done" / "2.0.0")
    words = {"missing": "is not finished (75% done)", "swapped": f"attention_received of edit 2 ({EDITS[2].label})"}
    assert_refused(words.get(damage, f"done of edit 2 ({EDITS[2].label})"), lambda: open_store(store))
    sweep(store)
    assert files(store) == before


@pytest.mark.parametrize("damage", NOT_SWAPPED)
def test_a_chunk_of_several_edits_is_named_and_they_are_computed_again(sweep, tmp_path, capsys, damage):
    store = tmp_path / "x.zarr"
    sweep(store, chunk_bytes=4 * 3 * 6 * 12 * 4 * 3)  # of attention_received: prompts, layers, heads, keys, bytes, and edits
    before, written = files(store), {path: path.stat().st_mtime_ns for path in store.rglob("*") if path.is_file()}
    assert {path.name[0] for path in (store / "nll").glob("[0-9]*")} == {"0", "1"}
    act, words = DAMAGES[damage]
    act(store / "nll" / "0.0.0")
    assert_refused(f"is damaged (nll of edits 0 to 2 {words})", lambda: open_store(store))
    sweep(store)
    assert capsys.readouterr().err == f"{store}: nll of edits 0 to 2 {words}; computing only that again\n"
    assert files(store) == before
    assert {path.name[0] for path, time in written.items() if path.stat().st_mtime_ns != time} == {"0"}


def interrupt(seconds: float) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_call_that_was_not_packed_yet_is_named_and_computed_again(sweep, finished, tmp_path, capsys, monkeypatch, damage):
    store = tmp_path / "x.zarr"
    with monkeypatch.context() as patch:
        patch.setattr(Store, "pack", lambda *args: None)
        patch.setattr("sinkjax.sweeps.run.time.sleep", interrupt)  # all calls are done
        with pytest.raises(KeyboardInterrupt):
            sweep(store)
    assert Store(store).done.all()
    assert not Store(store).packed.any()
    act, words = DAMAGES[damage]
    if damage == "swapped":
        shutil.copy(store / ".calls" / "0.1", store / ".calls" / "0.2")
    else:
        act(store / ".calls" / "0.2")
    sentence = f"a call of edit 2 ({EDITS[2].label}) {words}"
    assert_refused("is not finished (75% done)" if damage == "missing" else f"is damaged ({sentence})", lambda: open_store(store))
    sweep(store)
    said = f"{store}: {sentence}; computing only that again\n"
    assert capsys.readouterr().err == ("" if damage == "missing" else said)
    assert files(store).keys() == files(finished).keys()
    xarray.testing.assert_identical(open_store(store).load(), open_store(finished).load())


@pytest.mark.parametrize("damage", NOT_SWAPPED)
def test_a_call_that_changes_before_it_is_packed_is_said_and_computed_again(
    sweep, finished, tmp_path, capsys, monkeypatch, damage
):
    write, left = Store.write, [None]

    def change(self, edits, block, values):
        write(self, edits, block, values)
        if 2 in edits and left:
            left.pop()
            DAMAGES[damage][0](self.path / ".calls" / "0.2")

    monkeypatch.setattr(Store, "write", change)
    sweep(tmp_path / "x.zarr")
    assert f"a call of edit 2 ({EDITS[2].label}) {DAMAGES[damage][1]}; computing only that again" in capsys.readouterr().err
    xarray.testing.assert_identical(open_store(tmp_path / "x.zarr").load(), open_store(finished).load())


@pytest.mark.parametrize("damage", NOT_SWAPPED)
@pytest.mark.parametrize("file", ["edit/0", "tokens/0.0", "length/0"])
def test_what_is_known_beforehand_is_written_again(sweep, store, capsys, file, damage):
    before = files(store)
    act, words = DAMAGES[damage]
    act(store / file)
    assert_refused(f"({file} {words})", lambda: open_store(store))
    sweep(store)
    assert f"{file} {words}; computing only that again" in capsys.readouterr().err
    assert files(store) == before


@pytest.mark.parametrize("damage", NOT_SWAPPED)
@pytest.mark.parametrize("file", METADATA)
def test_damaged_metadata_are_refused_in_a_sentence(sweep, store, file, damage):
    DAMAGES[damage][0](store / file)
    assert_refused(f"is damaged ({file} is ", lambda: open_store(store), lambda: sweep(store), lambda: Store(store))


@pytest.mark.parametrize("key", ["sweep", "schedule", "study"])
def test_attributes_without_a_field_are_refused_in_a_sentence(sweep, store, key):
    attributes = json.loads((store / ".zattrs").read_text())
    attributes.pop(key, None)
    (store / ".zattrs").write_text(json.dumps(attributes))
    assert_refused("is damaged (.zattrs is not what was written)", lambda: open_store(store), lambda: sweep(store))


@pytest.mark.parametrize("name", ["nll", "done", "edit", "cells_changed"])
def test_a_missing_array_is_refused_in_a_sentence(sweep, store, name):
    shutil.rmtree(store / name)
    assert_refused(f"is damaged ({name}/.z", lambda: open_store(store), lambda: sweep(store))


def former(store: Path) -> Path:
    """The store as it was written before chunks had checksums."""
    source, path = zarr.open_group(store, mode="r", zarr_format=2), store.with_name("former.zarr")
    group = zarr.open_group(path, mode="w", zarr_format=2)
    for name, array in source.arrays():
        values = np.asarray(array).astype(bool).all(axis=-1) if name == "done" else np.asarray(array)
        size = (1, 1) if name == "done" else array.chunks
        copy = group.create_array(name, shape=values.shape, chunks=size, dtype=values.dtype, fill_value=array.fill_value)
        copy.attrs["_ARRAY_DIMENSIONS"] = array.attrs["_ARRAY_DIMENSIONS"][: values.ndim]
        copy[...] = values
    group.attrs.update(source.attrs.asdict())
    zarr.consolidate_metadata(path, zarr_format=2)
    return path


def test_a_former_store_is_read_and_not_computed_again(sweep, finished, store, monkeypatch):
    path = former(store)
    monkeypatch.setattr("sinkjax.sweeps.run.baseline", None)
    before = files(path)
    xarray.testing.assert_identical(sweep(path).load(), open_store(finished).load())
    assert files(path) == before


@pytest.mark.parametrize("damage", ["cut", "empty"])
def test_a_former_store_is_mended_where_a_chunk_does_not_decode(sweep, finished, store, damage):
    path = former(store)
    DAMAGES[damage][0](path / "nll" / "2.0.0")
    assert_refused(f"nll of edit 2 ({EDITS[2].label}) is not what was written", lambda: open_store(path))
    xarray.testing.assert_identical(sweep(path).load(), open_store(finished).load())


HALF_MADE: dict[str, tuple[Callable[[Path], None], str]] = {
    "done is gone": (lambda path: shutil.rmtree(path / "done"), "done/.zarray is missing"),
    "an array is gone": (lambda path: shutil.rmtree(path / "nll"), "nll/.zarray is missing"),
    "an array without metadata": (lambda path: (path / "edit/.zarray").unlink(), "edit/.zarray is missing"),
    "metadata gone": (lambda path: (path / ".zmetadata").unlink(), "its metadata are incomplete"),
    "metadata cut": (lambda path: cut(path / ".zmetadata"), "its metadata are incomplete"),
    "metadata of nothing": (lambda path: (path / ".zmetadata").write_text("{}"), "its metadata are incomplete: no 'metadata'"),
    "attributes gone": (lambda path: (path / ".zattrs").unlink(), "is not the store of a sweep"),
    "attributes cut": (lambda path: cut(path / ".zattrs"), "is not the store of a sweep"),
    "attributes of a study alone": (
        lambda path: (path / ".zattrs").write_text('{"study": {}}'),
        "is not the store of a sweep",
    ),
    "a folder": (lambda path: [shutil.rmtree(path), path.mkdir()], "is not the store of a sweep"),
}


@pytest.mark.parametrize("case", HALF_MADE)
def test_what_a_race_of_a_former_version_left_is_refused_in_a_sentence(sweep, store, case):
    path = former(store)
    act, words = HALF_MADE[case]
    act(path)
    assert_refused(words, lambda: sweep(path))
    with contextlib.suppress(SinkjaxError):  # where the consolidated metadata are whole, attributes are read from there
        open_store(path)


def test_what_killed_processes_left_beside_a_store_is_cleared_when_it_is_made(sweep, tmp_path):
    for name in (".x.zarr.new", ".x.zarr.0123456789abcdef.new"):
        (tmp_path / name / "nll").mkdir(parents=True)
    sweep(tmp_path / "x.zarr")
    assert [path.name for path in tmp_path.iterdir()] == ["x.zarr"]


# ---- calculations


@pytest.fixture
def squares(tmp_path):
    path = tmp_path / "squares.zarr"
    data = {"square": ("n", np.arange(3.0) ** 2), "even": ("n", np.array([True, False, True]))}
    write_whole(xarray.Dataset(data, {"n": ["0", "1", "2"]}), path, IDENTITY, {"text": "none"})
    return path


@pytest.mark.parametrize("damage", NOT_SWAPPED)
@pytest.mark.parametrize("file", ["square/0", "even/0", "n/0"])
def test_a_damaged_calculation_is_named_and_replaced(squares, capsys, file, damage):
    before, want = files(squares), open_store(squares).load()
    act, words = DAMAGES[damage]
    act(squares / file)
    assert_refused(f"is damaged ({file} {words})", lambda: open_store(squares))
    assert not holds(squares, IDENTITY)
    assert f"{file} {words}; computing it again" in capsys.readouterr().err
    write_whole(want, squares, IDENTITY, {"text": "none"})
    assert files(squares) == before
    assert holds(squares, IDENTITY)


def test_a_sound_calculation_is_not_replaced(squares):
    before = files(squares)
    write_whole(xarray.Dataset({"square": ("n", np.zeros(3))}), squares, IDENTITY, {"text": "none"})
    assert files(squares) == before
    other = IDENTITY | {"calculation": "cubes"}
    assert_refused("holds another sweep", lambda: write_whole(xarray.Dataset(), squares, other, {}))


# ---- who makes a store


def test_a_store_is_made_by_one_process_at_a_time(tmp_path, monkeypatch):
    path, entered, leave, found = tmp_path / "x.zarr", threading.Event(), threading.Event(), []

    def first() -> None:
        with claims.making(path) as scratch:
            (scratch / "a").mkdir(parents=True)
            entered.set()
            assert leave.wait(60)

    def second() -> None:
        with claims.making(path) as scratch:
            found.append(scratch)

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    assert entered.wait(60)
    with monkeypatch.context() as patch:
        patch.setattr(claims, "PATIENCE", 0.1)
        assert_refused(f"another process has been making {path}", lambda: claims.making(path).__enter__())
    threads[1].start()
    leave.set()
    for thread in threads:
        thread.join(60)
    assert found == [None]
    assert {entry.name for entry in tmp_path.iterdir()} == {"x.zarr"}


@pytest.fixture(params=[errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP], ids=errno.errorcode.get)
def no_locks(request, monkeypatch):
    """A file system without locks, in the words of several."""

    def flock(file: int, what: int) -> None:
        raise OSError(request.param, os.strerror(request.param))

    monkeypatch.setattr(fcntl, "flock", flock)


@pytest.mark.usefixtures("no_locks")
def test_without_locks_several_processes_may_do_the_same_and_nothing_blocks(tmp_path):
    (tmp_path / LOCK).write_text("1\nelsewhere\n")  # as a process of another host left it
    with claims.Claims(tmp_path / "claims") as mine, claims.Claims(tmp_path / "claims") as other:
        assert mine.take("0.0")
        assert other.take("0.0")
    with alone(tmp_path), alone(tmp_path):
        pass


@pytest.mark.usefixtures("no_locks")
def test_without_locks_the_first_rename_wins_and_stays(tmp_path):
    path = tmp_path / "x.zarr"
    with claims.making(path) as slower:
        slower.mkdir()
        (slower / "content").write_text("slower")
        moved = slower.rename(tmp_path / "aside")  # what the faster one would take for left over
        with claims.making(path) as faster:
            faster.mkdir()
            (faster / "content").write_text("faster")
        moved.rename(slower)
    assert (path / "content").read_text() == "faster"
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.zarr"]


def test_a_call_belongs_to_one_process_until_it_is_dropped(tmp_path):
    with claims.Claims(tmp_path / "claims") as mine, claims.Claims(tmp_path / "claims") as other:
        assert mine.take("0.0")
        assert not other.take("0.0")
        assert "process" in other.owner("0.0")
        assert other.take("0.1")
        mine.drop("0.0")
        assert other.take("0.0")
    assert not (tmp_path / "claims").exists()


def test_a_folder_of_claims_that_vanishes_while_it_is_made_is_tried_again_later(tmp_path, monkeypatch):
    """`Path.mkdir(exist_ok=True)` fails if the folder is there when it asks, and gone when it looks what it is."""

    def mkdir(self, *args, **kwargs):
        raise FileExistsError(errno.EEXIST, "File exists", str(self))

    with claims.Claims(tmp_path / "claims") as mine:
        with monkeypatch.context() as patch:
            patch.setattr(Path, "mkdir", mkdir)
            assert not mine.take("0.0")
        assert mine.take("0.0")
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError), claims.Claims(tmp_path / "file") as none:
        none.take("0.0")
