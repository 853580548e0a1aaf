"""Cards that others send are read as they were, or refused if damaged or hostile; side by side they make one table."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

import sinkjax
from sinkjax.cards import compare, files
from sinkjax.cards.shared import read_card, shared
from sinkjax.cli.main import main
from sinkjax.errors import SinkjaxError
from sinkjax.report.page import page
from tests.cards.test_files import SIZE

Change = Any


@pytest.fixture(scope="module")
def card() -> sinkjax.Card:
    return sinkjax.card(sinkjax.load("mini-softmax"), **SIZE)


def changed(card: sinkjax.Card, *path: Any, value: Any = None, drop: bool = False) -> bytes:
    """A card.json with one entry of another value, or without it, and a checksum that agrees."""
    content = json.loads(json.dumps(card.content()))
    *inner, last = path
    part = content
    for key in inner:
        part = part[key]
    if drop:
        del part[last]
    else:
        part[last] = value
    plain = {"version": files.VERSION, **content}
    return json.dumps(plain | {"checksum": files._sum(plain)}).encode()


def test_a_card_is_read_as_it_was_saved_and_is_shared_without_its_owner(card, tmp_path: Path) -> None:
    card.save(tmp_path / "card")
    assert read_card(tmp_path / "card") == dataclasses.replace(card, prefix=None)
    model, prompts = {"name": "/srv/secret/model.gguf"}, {"text": "/srv/letters.txt"}
    private = dataclasses.replace(card, model=card.model | model, prompts=card.prompts | prompts)
    (tmp_path / "sent.json").write_bytes(sent := shared(private, by="Ann"))
    assert b"secret" not in sent
    assert b"letters" not in sent
    got = read_card(tmp_path / "sent.json")
    assert (got.model["name"], got.passages) == ("model.gguf", {})
    assert got.model["weights"] == card.model["weights"]
    for part in ("where", "cause", "maker", "purpose", "cost"):
        assert getattr(got, part) == getattr(card, part)


DAMAGED: dict[str, tuple[Change, str]] = {
    "cut": (lambda card: card.files()["card.json"][:-200], "not JSON"),
    "empty": (lambda card: b"", "not JSON"),
    "a digit": (lambda card: card.files()["card.json"].replace(b'"of": 8', b'"of": 9'), "has changed"),
    "no version": (lambda card: b"{}", "version"),
    "another version": (lambda card: card.files()["card.json"].replace(b"sinkjax-card/4", b"sinkjax-card/3"), "version"),
    "a list": (lambda card: b"[]", "not the file of a card"),
    "a part lost": (lambda card: changed(card, "cost", drop=True), "lacks cost"),
    "a field lost": (lambda card: changed(card, "where", "rate", drop=True), "lacks rate"),
    "half an interval": (lambda card: changed(card, "where", "rate", value={"mean": 0.3}), "must have high, low, mean, n"),
    "layers that do not agree": (lambda card: changed(card, "where", "of", value=7), "do not agree"),
}
HOSTILE: dict[str, tuple[Change, str]] = {
    "not finite": (lambda card: changed(card, "where", "share", value=float("nan")), "not finite"),
    "beyond float": (lambda card: changed(card, "where", "share", value=10**400), "not finite"),
    "a long text": (lambda card: changed(card, "model", "name", value="x" * 10_000), "text of 10,000"),
    "a text for a number": (lambda card: changed(card, "where", "position", value="0"), "not a card's"),
    "a number for a text": (lambda card: changed(card, "hangs", "kind", value=3), "not a card's"),
    "another kind": (lambda card: changed(card, "hangs", "kind", value="<script>"), "not a card's"),
    "true for a number": (lambda card: changed(card, "cost", "spared", value=[True]), "not a card's"),
    "a sender that is no text": (lambda card: changed(card, "shared", value=["me"]), "shared is a list"),
    "an unknown field": (lambda card: changed(card, "where", "evil", value=1), "unknown key 'evil'"),
    "a deep nest": (lambda card: b'{"version":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "not JSON"),
    "too large": (lambda card: b'{"version": "' + b"x" * 9_000_000 + b'"}', "more than 8,000,000 bytes"),
}


@pytest.mark.parametrize("kind", [*DAMAGED, *HOSTILE])
def test_damaged_and_hostile_cards_are_refused(kind: str, card, tmp_path: Path) -> None:
    make, why = (DAMAGED | HOSTILE)[kind]
    (tmp_path / "card.json").write_bytes(make(card))
    with pytest.raises(SinkjaxError, match=why):
        read_card(tmp_path / "card.json")


def test_texts_of_a_card_are_never_markup(card, tmp_path: Path) -> None:
    (tmp_path / "card.json").write_bytes(changed(card, "model", "name", value="<script>alert(1)"))
    section = compare.as_section([read_card(tmp_path)] * 2)
    assert "<script>alert" not in page([section], section.title)


def test_cards_side_by_side_have_the_numbers_of_each(card) -> None:
    wide = dataclasses.replace(card.where, by_head=[[0.5] * 4] * 2, of=8)
    other = dataclasses.replace(card, where=wide, purpose=None)
    table = sinkjax.compare_cards(card, other)
    assert [*table.columns] == ["mini-softmax (1)", "mini-softmax (2)"]
    assert sinkjax.compare_cards(card).loc["the same with the best remedy"].item() in ("none saves enough", "not measured")
    assert table.loc["heads that sink"].tolist() == [f"{len(card.where.heads)} of 8"] * 2
    assert table.loc["loss with its key hidden"].tolist()[1] == "not measured"
    shapes = {tuple(axes.images[0].get_array().shape) for axes in compare.draw_heads([card, other]).axes if axes.images}
    assert (4, 4) in shapes  # the larger of both along each axis


@pytest.mark.parametrize("verb", ["card", "report"])
def test_both_verbs_show_cards_side_by_side(card, verb: str, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    folders = [str(card.save(tmp_path / name)) for name in ("first", "second")]
    assert main([verb, *folders]) == 0
    path = Path(capsys.readouterr().out.splitlines()[-1])
    assert "mini-softmax (2)" in path.read_text()
