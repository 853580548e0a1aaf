"""The numbers of the README are those of the tables."""

from __future__ import annotations

import importlib
import lzma
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(ROOT / "scripts")
    return importlib.import_module("front_page")


def test_the_pages_say_what_the_tables_say(script, tmp_path, monkeypatch):
    names = [*script.PAGES, *(f"docs/results/{name}.md" for name in script.RESULTS)]
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in names}
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "docs/results/data").symlink_to(ROOT / "docs/results/data")
    for name in ("pyproject.toml", "CITATION.cff"):
        shutil.copy(ROOT / name, tmp_path / name)
    monkeypatch.setattr(script, "ROOT", tmp_path)
    script.main()
    for name, text in texts.items():
        assert (tmp_path / name).read_text(encoding="utf-8") == text, name
    made = {name for text in texts.values() for name in re.findall("<!-- (.+) made by scripts/front_page.py -->", text)}
    assert made == {template.stem for template in (script.TEMPLATES / "front").glob("*.md")}


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_a_page_has_the_findings(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert text.index("findings made by scripts/front_page.py") < text.index("\n## ", text.index("## Main findings") + 5)


def test_a_number_that_is_not_there_stops_the_script(script):
    look = script.Named(ends=False)
    assert look("340k/k").endswith("%")
    assert 0 < float(look("while-it-learns; table hidden; never hidden; attention to token 1; .3f")) < 1
    names = (
        "340k/nothing",
        "while-it-learns; table hidden; always hidden; attention to token 1; .3f",
        "in-use/mini-softmax/one key",
        "emergence/step 3/loss",
    )
    for name in names:
        with pytest.raises(SystemExit, match=name):
            look(name)


def test_a_number_of_emergence_has_the_digits_of_its_size_and_its_interval(script, tmp_path):
    (tmp_path / "results/data" / "emergence").mkdir(parents=True)
    (tmp_path / "results/data" / "emergence" / "summary.csv").write_text(
        "model,measure,mean,low,high,effect_mean,effect_low,effect_high\n"
        "late,heads (%),72.4,68.3,76.1,-1.25,-2,-0.5\nlate,loss,3.1,3,3.2,0.2242,0.1941,0.2543\nlate,none (%),0,0,0,0,0,0\n"
    )
    look = script.Named(tmp_path)
    assert look("emergence/late/heads (%)") == "72% [68, 76]"
    assert look("emergence/late/heads (%)/effect") == "-1.2 [-2.0, -0.5]"
    assert look("emergence/late/loss/effect") == "0.224 [0.194, 0.254]"
    assert look("emergence/late/none (%)") == "0% [0, 0]"
    assert script.Named(tmp_path, ends=False)("emergence/late/loss") == "3.1"


def test_a_second_way_saves_a_share_of_the_loss_that_the_first_adds(script, tmp_path):
    (tmp_path / "results/data").mkdir(parents=True)
    rows = ["full precision, all keys|2.0", "rough|3.0", "spared|2.25"]
    lines = [f'mini,model,as it is,"{row.split("|")[0]}",a,{row.split("|")[1]}' for row in rows]
    (tmp_path / "results/data" / "in-use.csv.xz").write_bytes(
        lzma.compress("\n".join(["model,bos,edit,way,document,loss", *lines]).encode())
    )
    look = script.Named(tmp_path)
    assert look("in-use/mini/rough") == "1.000"
    assert look("in-use/mini/rough/spared") == "75%"


def test_a_word_is_checked_without_being_printed(script):
    look = script.Named()
    assert look("kiya/mask.all@gemma=absent", "word") == ""
    with pytest.raises(SystemExit, match="replicates"):
        look("kiya/mask.all@gemma=replicates", "word")


def test_a_cell_of_a_long_table_has_its_interval_its_format_and_names_with_colons(script, tmp_path):
    (tmp_path / "results/data").mkdir(parents=True)
    lines = [
        "table,row,column,mean,low,high,n,text",
        "a,gated: at 4,heads (%),46.9,39.54,54.3,8,",
        "a,gated: at 4,seeds,,,,,8 of 8",
    ]
    (tmp_path / "results/data/long.csv").write_text("\n".join(lines))
    look = script.Named(tmp_path)
    assert look("long; a; gated", " at 4; heads (%); .1f%") == "46.9% [39.5, 54.3]"
    assert look("long; a; gated", " at 4; heads (%)") == "46.9 [39.5, 54.3]"
    assert look("long; a; gated", " at 4; seeds") == "8 of 8"
    assert script.Named(tmp_path, ends=False)("long; a; gated", " at 4; heads (%); .0f") == "47"
    with pytest.raises(SystemExit, match="gated: at 5"):
        look("long; a; gated", " at 5; heads (%); .0f")


def test_a_row_that_learns_faster_has_the_baselines_last_loss_sooner(script, tmp_path, monkeypatch):
    named = script.Named(tmp_path)
    rows = {"softmax": [4.0, 3.0, 2.0], "fast": [4.0, 2.0, 1.0], "half": [4.0, 3.0, 1.0], "slow": [4.0, 3.5, 3.0]}
    monkeypatch.setattr(
        named, "curves", lambda row: {seed: (np.array([0.0, 50, 100]), np.array(rows[row])) for seed in map(str, range(8))}
    )
    assert named("sooner/fast").startswith("50%")
    assert named("sooner/half").startswith("75%")
    assert named("sooner/slow") == "never"


@pytest.mark.parametrize(
    "name",
    [
        *("benchmarks", "bos-fraction", "emergence", "findings-more", "gates", "parity"),
        *("pretraining", "pretraining-340k", "rates", "trigger", "while-it-learns"),
    ],
)
def test_a_page_of_results_fits_on_a_screen(name):
    """One figure and one table of at most four columns, and few words; long tables are CSV."""
    lines = (ROOT / "docs/results" / f"{name}.md").read_text(encoding="utf-8").splitlines()
    tables = [line for line in lines if line.startswith("| ---")]
    assert len(tables) <= 1
    assert all(table.count("---") <= 4 for table in tables)
    assert sum(line.startswith("![") for line in lines) <= 1
    assert sum(any(map(str.isalnum, word)) for line in lines for word in line.split()) <= 800
