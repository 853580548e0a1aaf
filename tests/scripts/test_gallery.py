"""The gallery: a card for each study that ships, a small figure where a run was given, no text of a study as markup."""

from __future__ import annotations

import importlib.util
import json
import runpy
import sys
from pathlib import Path

import pytest

from sinkjax.config_files.files import shipped
from sinkjax.study import run
from sinkjax.study.choice import choose

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "gallery.py"
LARGEST = 260_000  # bytes of a figure


@pytest.fixture(scope="module")
def generate():
    """docs/generate.py as a module."""
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_study_that_ships_has_one_card_with_its_command(generate):
    page = generate.gallery()
    studies = [name for name in shipped() if not choose(name).suite]
    assert len(studies) > 30
    assert [name for name in studies if page.count(f"`sinkjax run {name}`") != 1] == []
    assert page.count("{container} card") == len(studies)


def test_the_figures_that_are_listed_are_there_and_small(generate):
    listed = json.loads((ROOT / "docs" / "gallery.json").read_text(encoding="utf-8"))
    assert listed.keys() <= {*shipped()}
    page = generate.gallery()
    for card in listed.values():
        assert (ROOT / "docs" / card["image"]).stat().st_size <= LARGEST
        assert f"{{image}} ../{card['image']}\n" in page


def test_a_card_counts_the_verdicts_of_each_model_and_holds_no_markup_of_a_text(generate):
    found = [
        {"model": model, "word": verdict} for model, verdict in (("a_b", "replicates"), ("a_b", "replicates"), ("c", "holds"))
    ]
    card = generate._card("kiya/mask", {"image": "images/x.png", "on": "a_b", "caption": "|h| of <b> [x](y)\n*z*"}, found)
    assert "- a\\_b: 2 replicates\n- c: 1 holds\n" in card
    assert ":alt: \\|h\\| of \\<b> \\[x\\](y) \\*z\\*\n" in card


def test_the_first_figure_of_a_run_is_drawn_small_and_what_was_there_stays(tmp_path, monkeypatch, capsys):
    docs, results = tmp_path / "docs", tmp_path / "results"
    docs.mkdir()
    (docs / "gallery.json").write_text('{"gu/norms": {"image": "images/old.png", "on": "m", "caption": "c"}}')
    run.run("kiya/embedding", results / "one", model="mini-softmax", bos="model", prompts=2, length=12)
    monkeypatch.setattr(sys, "argv", ["gallery.py", str(results), "--docs", str(docs)])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    listed = json.loads((docs / "gallery.json").read_text(encoding="utf-8"))
    assert list(listed) == ["gu/norms", "kiya/embedding"]
    card = listed["kiya/embedding"]
    assert card["on"].startswith("mini-softmax; prompts: 1 of up to 12 tokens")
    image = (docs / card["image"]).read_bytes()
    assert image.startswith(b"\x89PNG")
    assert len(image) <= LARGEST
    assert "2 studies have a figure" in capsys.readouterr().out
