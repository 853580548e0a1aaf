"""docs/results/pretraining.md: a table for every study, the paper's numbers, and ours where it was run."""

from __future__ import annotations

import json
import re
import runpy
import sys
from pathlib import Path

import pytest

from sinkjax.config_files import documents
from sinkjax.studies.registry import choose, program
from sinkjax.train.log import LOG
from tests.papers.pretrain.logs import curve, log

ROOT = Path(__file__).parents[2]
STEPS = 3000  # those that the studies state


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> dict:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return runpy.run_path(str(ROOT / "scripts" / "pretrain_tables.py"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A study of which one row goes on and one is finished."""
    out = tmp_path / "out"
    log(out / "decay-0", [*curve(0, [5.0, 4.0], 0.2, STEPS), *curve(1, [5.0, 4.2], 0.4, STEPS)], STEPS)
    log(out / "decay-0.5", curve(0, [5.0, 4.0, 3.0], 0.2, STEPS)[:2], STEPS)
    (out / "config.yaml").write_text(documents.write("pretrain/gu-weight-decay", choose("pretrain/gu-weight-decay").config))
    return out


def run(script: dict, monkeypatch: pytest.MonkeyPatch, page: Path, *arguments: str) -> str:
    """What the page holds after the script has run, with logs beside it."""
    arguments += ("--out", str(page), "--logs", str(page.parent / "logs"))
    monkeypatch.setattr(sys, "argv", ["pretrain_tables.py", *arguments])
    script["main"]()
    return page.read_text()


def test_what_was_run_stands_beside_the_paper_and_stays_there(script, folder, tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    first = run(script, monkeypatch, page, str(folder))
    assert "| decay 0 | 2 of 2 | 30.0 [-97.1, 157] | 15.2 | 4.10 [2.83, 5.37] | 3.72 |" in first
    assert "| decay 0.1 | not run | - | 18.18 | - | 3.73 |" in first
    assert "| decay 0.5 | not run |" in first  # its run is not finished
    assert run(script, monkeypatch, page) == first  # from what is kept


def test_seeds_that_are_trained_later_join_those_that_are_kept(script, folder, tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    run(script, monkeypatch, page, str(folder))
    for entry in (folder / "decay-0").iterdir():
        entry.unlink()
    (folder / "decay-0").rmdir()
    again, new = curve(1, [5.0, 4.4], 0.4, STEPS), curve(7, [5.0, 4.0], 0.6, STEPS)
    log(folder / "decay-0", [*again, *new], STEPS)
    assert "| decay 0 | 3 of 3 | 40.0" in run(script, monkeypatch, page, str(folder))
    first, lines = script["kept_logs"].read("gu-weight-decay/decay-0", tmp_path / "logs")
    assert [entry["seed"] for entry in first["runs"]] == [0, 1, 7]
    assert [(entry["run"], entry["seed"], entry["loss"]) for entry in lines if entry["step"] == STEPS] == [
        (0, 0, 4.0),
        (1, 1, 4.4),  # the later one
        (2, 7, 4.0),
    ]


def test_the_training_of_the_study_of_emergence_is_a_row_of_the_core_table(script, tmp_path, monkeypatch):
    out, page = tmp_path / "out", tmp_path / "page.md"
    log(out / "softmax", [*curve(3, [5.0, 4.0], 0.2, STEPS), *curve(4, [5.0, 4.2], 0.4, STEPS)], STEPS)
    (out / "config.yaml").write_text(documents.write("emergence/causal", choose("emergence/causal").config))
    core = run(script, monkeypatch, page, str(out)).partition("<!-- begin pretrain/mini -->")[2]
    assert "| softmax | 2 of 8 |" in core.partition("<!-- end pretrain/mini -->")[0]


def test_the_row_of_the_llama_s_block_is_that_of_the_core_table_with_its_own_seeds(script, tmp_path, monkeypatch):
    out, page = tmp_path / "out", tmp_path / "page.md"
    log(out / "softmax", [*curve(6, [5.0, 4.0], 0.2, STEPS), *curve(7, [5.0, 4.2], 0.4, STEPS)], STEPS)  # families: 3 to 6
    (out / "config.yaml").write_text(documents.write("emergence/causal", choose("emergence/causal").config))
    families = run(script, monkeypatch, page, str(out)).partition("<!-- begin pretrain/families -->")[2]
    (row,) = [line for line in families.splitlines() if line.startswith("| Llama")]
    assert row.startswith("| Llama (pre-norm, RoPE, SwiGLU) | 1 of 4 | 20")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 100}, "steps 100, .* 3000"),
        ({"weight_decay": 0.2}, "weight_decay 0.2, .* 0"),
        ({"corpus": "other"}, "another text"),
    ],
)
def test_runs_of_another_study_are_not_mixed_in(script, folder, tmp_path, monkeypatch, capsys, change, message):
    page = tmp_path / "page.md"
    run(script, monkeypatch, page, str(folder))
    path = folder / "decay-0" / LOG
    first, *lines = path.read_text().splitlines()
    header = json.loads(first)
    if "corpus" in change:
        header["data"] = change
    else:
        header["config"] |= change
    path.write_text("\n".join([json.dumps(header), *lines]) + "\n")
    with pytest.raises(SystemExit):
        run(script, monkeypatch, page, str(folder))
    assert re.search(message, " ".join(capsys.readouterr().err.split()))


def test_another_size_has_a_table_of_its_own(script, folder, tmp_path):
    text = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(text.replace("size: mini", "size: 60m"))
    assert script["read"](folder, tmp_path / "logs")[0] == "pretrain/gu-weight-decay at 60m"


def test_what_is_no_study_is_refused(script, tmp_path, monkeypatch, capsys):
    chosen = choose("trigger/sizes")
    (tmp_path / "config.yaml").write_text(documents.write(chosen.experiment, chosen.config))
    with pytest.raises(SystemExit):
        run(script, monkeypatch, tmp_path / "page.md", str(tmp_path))
    assert "trigger/sizes" in capsys.readouterr().err


def test_every_study_stands_on_one_of_the_two_pages(script):
    page, small = (ROOT.joinpath("docs/results", f"pretraining{name}.md").read_text(encoding="utf-8") for name in ("", "-340k"))
    for name in set(script["studies"]()) - {"pretrain/backcopy"}:  # which has not been run
        here = f"<!-- begin {name} -->" in page
        assert here != (f"### {program(name).prose.title}\n" in small), name
