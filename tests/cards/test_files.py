"""A card's folder and its files: whole, of one model, and read only as they were written."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sinkjax
from sinkjax import SinkjaxError
from sinkjax.cards.files import CARD, CLAMP, NAMES, PAGE, PREFIX, SINKS
from sinkjax.checkpoints.model import Model
from sinkjax.cli import card as command
from sinkjax.cli.main import main

SIZE: dict[str, Any] = {"prompts": 4, "length": 24}


@pytest.fixture(scope="module")
def card() -> sinkjax.Card:
    """The card of a model with a sink, in which an activation stands out."""
    return sinkjax.card(sinkjax.load("mini-softmax"), **SIZE)


@pytest.fixture(scope="module")
def other(card: sinkjax.Card) -> sinkjax.Card:
    """Stands for the card of another model."""
    cause = dataclasses.replace(card.cause, tokens=[(7, "x")])
    return dataclasses.replace(card, model={**card.model, "name": "other", "weights": "0" * 16}, cause=cause)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_files_are_read_with_their_model(card: sinkjax.Card, tmp_path: Path) -> None:
    model, folder = sinkjax.load("mini-softmax"), card.save(tmp_path / "card")
    sinks = sinkjax.load_sinks(folder / SINKS, model)
    ids = np.array([[0, 100, 101]])
    np.testing.assert_array_equal(sinkjax.sink_mask(ids, sinks), sinkjax.sink_mask(ids, card.sink_tokens()))
    assert json.loads((folder / CARD).read_text())["hangs"]["kind"] == card.cause.kind  # the key of earlier cards
    tokens = np.zeros((1, 12), np.int32)
    probe = sinkjax.Probe(resid_max=True)
    runs = [sinkjax.forward(model, tokens, edits=edit, probe=probe) for edit in (sinkjax.load_clamp(folder / CLAMP, model), ())]
    clamped, plain = (np.asarray(out.record["resid_max"])[0, 1:, 0] for out in runs)
    found = card.where.activation
    assert found.stands_out
    assert clamped[found.layer] < plain[found.layer]
    sinkjax.forward(model, tokens, past=sinkjax.load_prefix(folder / PREFIX))


@pytest.mark.parametrize("name", [SINKS, CLAMP])
def test_a_flipped_bit_or_another_model_is_refused(card: sinkjax.Card, name: str, tmp_path: Path) -> None:
    path, model = card.save(tmp_path / "card") / name, sinkjax.load("mini-softmax")
    use = {SINKS: sinkjax.load_sinks, CLAMP: sinkjax.load_clamp}[name]
    for strange in (sinkjax.load("mini-head-norm"), sinkjax.load("mini-softmax", dtype="bfloat16")):
        with pytest.raises(SinkjaxError, match=r"was made with mini-softmax .* in bfloat16|and this is mini-head-norm"):
            use(path, strange)
    raw = path.read_bytes()
    for place in range(0, len(raw), 3):
        path.write_bytes(raw[:place] + bytes([raw[place] ^ 1 << place % 5]) + raw[place + 1 :])
        with pytest.raises(SinkjaxError):
            use(path, model)
    path.write_bytes(raw)
    use(path, model)
    former = {key: value for key, value in json.loads(raw).items() if key not in ("checksum", "model")}
    path.write_text(json.dumps({**former, "version": "sinkjax-card/3"}))
    with pytest.raises(SinkjaxError, match="make the card again"):
        use(path, model)


def test_the_mask_of_a_changed_file_is_refused_also_where_its_content_was_read_by_hand(
    card: sinkjax.Card, tmp_path: Path
) -> None:
    content = json.loads((card.save(tmp_path / "card") / SINKS).read_text())
    assert sinkjax.sink_mask([0, 5], content).shape == (2,)
    for changed in ({"tokens": [1]}, {"version": "sinkjax-card/3"}, {"checksum": "0" * 16}):
        with pytest.raises(SinkjaxError, match=r"sink_tokens.json (has changed|is not of version)"):
            sinkjax.sink_mask([0, 5], content | changed)


def test_a_folder_takes_the_same_card_again_and_no_other(card: sinkjax.Card, other: sinkjax.Card, tmp_path: Path) -> None:
    folder = card.save(tmp_path / "card")
    first = contents(folder)
    card.save(folder)
    assert contents(folder) == first
    text = dataclasses.replace(card, passages={**card.passages, "costs": [[1, 2, 3]]})
    for wrong, said in ((other, 'name was "mini-softmax", now "other"'), (text, "passages was")):
        with pytest.raises(SinkjaxError, match=said):
            wrong.save(folder)
        assert contents(folder) == first
    without = dataclasses.replace(card, prefix=None)
    without.save(folder)
    assert not (folder / PREFIX).exists()  # nothing of the former files is left


def test_other_content_is_left_alone(card: sinkjax.Card, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "odd" / CARD).mkdir(parents=True)
    added, broken = card.save(tmp_path / "added"), card.save(tmp_path / "broken")
    (added / "mine.txt").write_text("mine")
    (broken / CARD).write_text((broken / CARD).read_text().replace("mini", "maxi"))
    (tmp_path / "link").symlink_to(card.save(tmp_path / "card"))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for name in ("notes", "file", "odd", "added", "broken", "link", "file/card"):
        with pytest.raises(SinkjaxError):
            card.save(tmp_path / name)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(SinkjaxError, match="working directory"):
        card.save(".")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("url", ["s3://bucket/card", "memory://card", "gs://bucket/card"])
def test_an_object_store_is_one_sentence_and_a_tilde_is_the_home(
    card: sinkjax.Card, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with pytest.raises(SinkjaxError, match="save it here, and copy it there"):
        card.save(url)
    assert list(tmp_path.iterdir()) == []
    assert card.save("~/card") == tmp_path / "home" / "card"
    assert card.save(f"file://{tmp_path}/plain").is_dir()
    assert main(["card", "mini-softmax", "--out", url]) == 2


def test_two_processes_leave_one_whole_card(card: sinkjax.Card, other: sinkjax.Card, tmp_path: Path) -> None:
    """Each of many saves of two cards at the same time puts all files in place, or is refused."""
    allowed = [contents(each.save(tmp_path / name)) for name, each in (("a", card), ("b", other))]

    def save(which: sinkjax.Card, folder: Path) -> str:
        try:
            return str(which.save(folder))
        except SinkjaxError as error:
            return str(error)

    for number in range(8):
        folder = tmp_path / f"both-{number}"
        with ThreadPoolExecutor(2) as pool:
            ends = [*pool.map(partial(save, folder=folder), (card, other))]
        assert contents(folder) in allowed
        assert all(str(folder) == end or "another card" in end or "cannot write" in end for end in ends)


@pytest.mark.kill
@pytest.mark.parametrize("call", range(1, 12))
def test_a_kill_at_any_call_of_the_system_leaves_a_whole_card(card: sinkjax.Card, call: int, tmp_path: Path) -> None:
    """Another card of the same model and passages is put over the first; the process ends at the nth call that changes names."""
    folder = card.save(tmp_path / "card")
    before, new = contents(folder), {**card.files(), PREFIX: b"new"}
    program = (
        "import os, pickle, sys\n"
        "from pathlib import Path\n"
        "from sinkjax.cards.files import put\n"
        "left = int(sys.argv[1])\n"
        "def counted(event, arguments):\n"
        "    global left\n"
        "    if event.startswith(('os.', 'open', 'shutil.', 'ctypes.')) and sys.argv[2].rpartition('/')[0] in str(arguments):\n"
        "        left -= 1\n"
        "        if not left: os._exit(9)\n"
        "contents, identity = pickle.load(open(sys.argv[3], 'rb'))\n"
        "sys.addaudithook(counted)\n"
        "put(sys.argv[2], contents, identity)\n"
    )
    (tmp_path / "new").write_bytes(pickle.dumps((new, card.identity)))
    subprocess.run([sys.executable, "-c", program, str(call), str(folder), str(tmp_path / "new")], check=False)
    assert contents(folder) in (before, new)
    card.save(folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["card", "new"]  # what the kill left is gone


def test_anyone_can_compute_a_cost_again_from_the_ids_of_the_passages(card: sinkjax.Card, tmp_path: Path) -> None:
    ids = json.loads((card.save(tmp_path / "card") / CARD).read_text())["passages"]["costs"]
    model, eight = sinkjax.load("mini-softmax"), {**dict.fromkeys(("weights", "activations", "kv"), 8), "scale": "tensor"}
    added = sinkjax.evaluate(model, ids, **eight).loss - sinkjax.evaluate(model, ids).loss
    assert added == pytest.approx(card.cost.of("8 bits, tensor")["mean"], abs=1e-5)


# The command


@pytest.mark.parametrize(
    "names",
    [
        ("org/Tiny2.5-small", "org/Tiny2.5-large"),
        ("a/m", "a+m", "a--m", "a%2Fm", "a-m", "a_m"),
        ("x" * 300 + "/a", "x" * 300 + "/b", "y" + "x" * 299 + "/a"),
        (".", ".."),
    ],
)
def test_each_model_has_a_folder_of_its_own(names: tuple[str, ...]) -> None:
    folders = [command.default_folder(name) for name in names]
    assert len({*folders}) == len(names)
    assert all(folder.parent == Path("results/card") and len(os.fsencode(folder.name)) < 256 for folder in folders)
    assert command.default_folder("smollm2-135m").name == "smollm2-135m"
    assert command.default_folder("./org/m/") == command.default_folder("org/m")


def test_another_model_is_refused_before_it_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, size = str(tmp_path / "card"), ["--prompts", "2", "--length", "24"]
    assert main(["card", "mini-softmax", *size, "--out", out]) == 0
    before = contents(tmp_path / "card")
    assert {*before} <= {*NAMES, PAGE}
    for model, more in (("mini-head-norm", size), ("mini-softmax", [*size, "--seed", "1"])):
        capsys.readouterr()
        assert main(["card", model, *more, "--out", out]) == 2
        said = capsys.readouterr()
        assert "holds another card" in said.err
        assert "where the sinks are" not in said.err
        assert contents(tmp_path / "card") == before


# What cannot be measured


def overflowing() -> Model:
    """`mini-softmax` in float16, with an embedding beyond its largest number after a block."""
    model = sinkjax.load("mini-softmax", dtype="float16")
    layers = {**model.params["layers"], "down": model.params["layers"]["down"] * np.float16(3e4)}
    return Model(model.config, {**model.params, "layers": layers}, model.tokenizer, model.source)


def test_a_model_that_overflows_is_one_sentence() -> None:
    with pytest.raises(SinkjaxError, match=r"loss of \d+ of \d+ prompts is not finite in float16"):
        sinkjax.card(overflowing(), **SIZE)
