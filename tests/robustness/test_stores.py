"""Stores that were damaged, left half-made, or begun by several processes: named in a sentence, mended by the same command."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import xarray
from numcodecs.checksum32 import CRC32C

import sinkjax
from sinkjax import Probe, SinkjaxError
from sinkjax.cli import main as cli
from sinkjax.study.folder import is_complete, open_store, write_whole
from sinkjax.sweeps.header import HEADER, sealed
from sinkjax.sweeps.schedule import Chunk
from sinkjax.sweeps.store import Store
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
    "cut": (cut, "has changed"),
    "empty": (empty, "has changed"),
    "flipped": (flip, "has changed"),
    "grown": (grow, "has changed"),
    "swapped": (swap, "has changed"),
}
CHUNKS = {"attention_received": "2.0.0.0.0", "nll": "2.0.0", "resid_argmax": "2.0.0.0"}
NOT_SWAPPED = tuple(name for name in DAMAGES if name != "swapped")
METADATA = (".zattrs", ".zgroup", ".zmetadata", "nll/.zarray", "nll/.zattrs", "edit/.zarray")


@pytest.fixture(scope="module")
def sweep(tiny_config, tiny_params):
    """The sweep of these tests into a path, a call for each edit, and as many edits in a chunk as bytes allow: one by default."""
    model, tokens = model_of(tiny_config, tiny_params), prompts(tiny_config)

    def run(out: Path | None, chunk_bytes: int = 1, **changes) -> xarray.Dataset:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sinkjax.sweeps.header.CHUNK_BYTES", chunk_bytes)
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
def test_a_chunk_is_named_and_only_its_edit_is_computed_again(sweep, store, capsys, monkeypatch, name, damage):
    before, computed = files(store), []
    act, words = DAMAGES[damage]
    act(store / name / CHUNKS[name])
    assert_refused(f"is damaged ({name}/{CHUNKS[name]} {words}", lambda: open_store(store))
    write = Store.write
    monkeypatch.setattr(Store, "write", lambda self, chunk, *rest: [computed.append(chunk.edits), write(self, chunk, *rest)])
    sweep(store)
    assert re.fullmatch(f"{store}: {name}/{CHUNKS[name]} {words}.*\n", capsys.readouterr().err)
    assert computed == [(2,)]
    assert files(store) == before


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_object_of_a_call_is_computed_again(sweep, finished, tmp_path, capsys, monkeypatch, damage):
    store = tmp_path / "x.zarr"
    with monkeypatch.context() as patch:
        patch.setattr(Store, "compact", interrupt)  # all calls are done
        with pytest.raises(KeyboardInterrupt):
            sweep(store)
    begun = Store(store)
    assert begun.done.all()
    first, second = (begun.object(Chunk(0, (edit,), 0), 0) for edit in (1, 2))
    shutil.copy(first, second) if damage == "swapped" else DAMAGES[damage][0](second)
    assert_refused(
        "is not finished (75% done)" if damage == "missing" else "is not finished (99% done)", lambda: open_store(store)
    )
    sweep(store)
    said = "" if damage == "missing" else f"{store}: .* edits 2 has changed.*\n"
    assert re.fullmatch(said, capsys.readouterr().err)
    assert files(store).keys() == files(finished).keys()
    xarray.testing.assert_identical(open_store(store).load(), open_store(finished).load())


def interrupt(*arguments: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("damage", NOT_SWAPPED)
@pytest.mark.parametrize("file", ["edit/0", "tokens/0.0", "length/0", *METADATA])
def test_what_is_known_beforehand_is_written_again_and_nothing_computed(sweep, store, monkeypatch, file, damage):
    before = files(store)
    act, words = DAMAGES[damage]
    act(store / file)
    gone = (file, damage) == (".zmetadata", "missing")  # as in a store that is being mended
    said = "is not finished (99% done)" if gone else f"is damaged ({file} {words}"
    assert_refused(said, lambda: open_store(store))
    monkeypatch.setattr("sinkjax.sweeps.calls.baseline", None)
    sweep(store)
    assert files(store) == before


@pytest.mark.parametrize("damage", NOT_SWAPPED)
def test_a_header_is_not_needed_once_the_arrays_are_there(sweep, finished, store, monkeypatch, damage):
    DAMAGES[damage][0](store / HEADER)
    monkeypatch.setattr("sinkjax.sweeps.calls.baseline", None)
    xarray.testing.assert_identical(open_store(store).load(), open_store(finished).load())
    sweep(store)
    cut(store / ".zmetadata")
    words = "not the store of a sweep" if damage == "missing" else "its metadata is missing"
    assert_refused(words, lambda: open_store(store), lambda: sweep(store))


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
    assert_refused(f"is damaged ({file} {words}", lambda: open_store(squares))
    assert not is_complete(squares, IDENTITY)
    write_whole(want, squares, IDENTITY, {"text": "none"})
    assert f"{file} {words}" in capsys.readouterr().err
    assert files(squares) == before
    assert is_complete(squares, IDENTITY)


# ---- a file system without locks


# ---- what is not a file, or has no end


def endless(file: Path) -> None:
    file.symlink_to("/dev/zero")


def huge(file: Path) -> None:
    """More bytes than memory has, none of them on the disk."""
    file.touch()
    os.truncate(file, 1 << 40)


def around(file: Path) -> None:
    file.symlink_to(file)


NOT_FILES = {"a pipe": os.mkfifo, "a folder": Path.mkdir, "a device": endless, "a terabyte": huge, "a link to itself": around}


def read_or_refused(call: Callable[[Path], xarray.Dataset], store: Path) -> xarray.Dataset | None:
    """The values of a store, or None if it is refused in one sentence that names it."""
    try:
        return call(store).load()
    except SinkjaxError as error:
        refusal = str(error)
    assert store.name in refusal
    assert "\n" not in refusal
    return None


@pytest.mark.parametrize("make", NOT_FILES.values(), ids=NOT_FILES)
def test_what_is_no_file_is_not_read_in_a_finished_store(sweep, finished, tmp_path, make):
    want, mended = open_store(finished).load(), 0
    for number, name in enumerate(["nll/2.0.0", "edit/0", ".zattrs", ".zmetadata", HEADER, "nll", ".hardware/0.json"]):
        store = Path(shutil.copytree(finished, tmp_path / f"{number}.zarr"))
        place = store / name
        shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
        place.parent.mkdir(exist_ok=True)
        make(place)
        for call in (open_store, sweep):
            if (found := read_or_refused(call, store)) is not None:
                xarray.testing.assert_identical(found.drop_attrs(), want.drop_attrs())
                mended += 1
    assert mended > 2


def poison(store: Path, change: Callable[[dict, dict], object]) -> Path:
    """The store with other metadata, consistent in all files that state them, as somebody makes who can write to it."""
    found = json.loads((store / ".zmetadata").read_text())
    change(found["metadata"], found)
    for name, entry in found["metadata"].items():
        if (store / name).parent.is_dir():
            (store / name).write_text(json.dumps(entry))
    content = json.dumps(found).encode()
    (store / ".zmetadata").write_bytes(content)
    (store / ".sweep").write_bytes(sealed(content))
    return store


def each_array(**entries):
    return lambda meta, found: [entry.update(entries) for name, entry in meta.items() if name.endswith("/.zarray")]


def many_edits(meta, found):
    for name, entry in meta.items():
        if name.endswith("/.zarray") and len(entry["shape"]) > 1:
            entry.update(shape=[10**9, *entry["shape"][1:]], chunks=[1, *entry["chunks"][1:]])


def calls_of(number: int):
    """Metadata of an unfinished sweep with so many prompts, one in each call."""

    def change(meta, found):
        found["sums"] = {}
        meta[".zattrs"]["schedule"]["prompt_block"] = 1
        for name, entry in meta.items():
            if name.endswith("/.zarray"):
                dims = meta[name.replace(".zarray", ".zattrs")]["_ARRAY_DIMENSIONS"]
                for key, size in (("shape", number), ("chunks", 1)):
                    entry[key] = [size if dim == "prompt" else old for dim, old in zip(dims, entry[key], strict=True)]

    return change


NLL, AROUND = "nll/.zarray", "nll/.zattrs"
NUMBERS = {
    "a codec that unpickles": (
        lambda meta, found: meta[NLL].update(filters=[{"id": "pickle"}], dtype="|O"), "the array 'nll' has the codecs ['pickle']",
    ),
    "a compressor": (lambda meta, found: meta[NLL].update(compressor={"id": "zfpy"}), "compressor of the array 'nll' is {'id':"),
    "a dtype of objects": (lambda meta, found: meta[NLL].update(dtype="|O"), "the dtype '|O'"),
    "a dtype of fields": (lambda meta, found: meta[NLL].update(dtype=[["a", "<f4"]]), "x.zarr"),
    "a file outside": (lambda meta, found: meta.update({"../victim/.zattrs": {}}), "'../victim' cannot be the name of a file"),
    "another file": (lambda meta, found: meta.update({"nll/evil": {}}), "'nll/evil' is no metadata of an array"),
    "10^9 edits, a chunk each": (many_edits, "the dimension 'edit' has"),
    "10^9 prompts, a call each": (calls_of(10**9), "calls, and a sweep has at most 1,000,000"),
    "chunks of 0": (lambda meta, found: meta[NLL].update(chunks=[0, 0, 0]), "must be at least 0 and 1"),
    "chunks of 1": (lambda meta, found: meta[NLL].update(chunks=[1, 1, 1]), "chunks that have no file"),
    "a shape below 0": (lambda meta, found: meta[NLL].update(shape=[-1, 3, 6]), "shape and chunks of the array 'nll'"),
    "a shape of null": (lambda meta, found: meta[NLL].update(shape=None), "must be a list, each entry an integer"),
    "too few dimensions": (lambda meta, found: meta[AROUND].update(_ARRAY_DIMENSIONS=["edit"]), "have different lengths"),
    "one dimension twice": (lambda meta, found: meta[AROUND].update(_ARRAY_DIMENSIONS=["a", "a", "b"]), "different names"),
    "a dimension of another size": (lambda meta, found: meta["length/.zarray"].update(shape=[1], chunks=[1]), "the dimension"),
    "a chunk of 10^12": (each_array(chunks=[10**12] * 3), "different lengths"),
    "a chunk of 4 GB": (lambda meta, found: meta[NLL].update(chunks=[10**9, 1, 1]), "has 4,000,000,000 bytes"),
    "a dtype of 2 GB": (lambda meta, found: meta["edit/.zarray"].update(dtype="|S2000000000"), "a chunk of the array 'edit' has"),
    "a dtype beyond all": (lambda meta, found: meta[NLL].update(dtype="|S" + "9" * 30), "the dtype"),
    "a fill value": (lambda meta, found: meta[NLL].update(fill_value="x"), "fill_value of the array 'nll' is 'x'"),
    "another format": (lambda meta, found: meta[NLL].update(zarr_format=3), "zarr_format of the array 'nll' is 3"),
    "no codecs": (lambda meta, found: meta[NLL].update(filters=None), "has the codecs [], but sinkjax writes blosc, crc32c"),
    "sums of text": (lambda meta, found: found.update(sums="x"), "its checksums must be a mapping"),
    "a sum of no chunk": (lambda meta, found: found["sums"].update({"nll/9.0.0": 1}), "which is no chunk of an array"),
    "a chunk without a sum": (lambda meta, found: found["sums"].pop("edit/0"), "need 1 chunks that have no file"),
    "no attributes of an array": (lambda meta, found: meta.pop(AROUND), "the dimensions of the array 'nll'"),
    "sweep of null": (lambda meta, found: meta[".zattrs"].update(sweep=None), "sweep must be a mapping, not null"),
    "machines of text": (lambda meta, found: meta[".zattrs"].update(hardware="cpu"), "hardware must be a list"),
    "a block of 0": (lambda meta, found: meta[".zattrs"]["schedule"].update(prompt_block=0), "schedule.prompt_block must be"),
    "an edit that is not there": (lambda meta, found: meta[".zattrs"]["schedule"]["chunks"][0][2].append(10**9), "edits once"),
    "a call without its edits": (lambda meta, found: meta[".zattrs"]["schedule"]["chunks"][0].pop(), "a list of 5, not of 3"),
}  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
def test_metadata_choose_no_code_no_file_and_no_memory(store, sweep, name, capsys):
    change, words = NUMBERS[name]
    poison(store, change)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert_refused(words, lambda: open_store(store))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB
    assert cli.main(["report", str(store)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert_refused("x.zarr", lambda: sweep(store))
    assert not (store.parent / "victim").exists()


def test_a_chunk_that_decodes_to_another_size_is_damaged(store):
    """The file of a chunk says itself how much a reader allocates."""
    file = store / "nll" / CHUNKS["nll"]
    content = bytearray(CRC32C().decode(file.read_bytes()))
    content[4:8] = (2**31 - 1).to_bytes(4, "little")
    file.write_bytes(changed := bytes(CRC32C().encode(bytes(content))))
    poison(store, lambda meta, found: found["sums"].update({f"nll/{CHUNKS['nll']}": changed[-4:].hex()}))
    assert_refused(f"nll/{CHUNKS['nll']} has changed", lambda: open_store(store))


def test_other_metadata_beside_a_stores_own_are_not_read(finished, store):
    (store / "zarr.json").write_text(json.dumps({"zarr_format": 3, "node_type": "group", "attributes": {"evil": 1}}))
    assert "evil" not in open_store(store).attrs
    assert open_store(store).identical(open_store(finished))


@pytest.mark.parametrize("make", NOT_FILES.values(), ids=NOT_FILES)
def test_what_is_no_file_is_not_read_in_an_unfinished_store(sweep, finished, tmp_path, monkeypatch, make):
    begun, want = tmp_path / "begun.zarr", open_store(finished).load()
    with monkeypatch.context() as patch:
        patch.setattr(Store, "compact", interrupt)  # all calls are done
        with pytest.raises(KeyboardInterrupt):
            sweep(begun)
    for number, name in enumerate([HEADER, next(name for name in files(begun) if ".calls" in name), ".calls"]):
        store = Path(shutil.copytree(begun, tmp_path / f"{number}.zarr"))
        place = store / name
        shutil.rmtree(place) if place.is_dir() else place.unlink()
        make(place)
        if (found := read_or_refused(sweep, store)) is not None:
            xarray.testing.assert_identical(found.drop_attrs(), want.drop_attrs())
        else:
            assert name in (HEADER, ".calls") or make == Path.mkdir
