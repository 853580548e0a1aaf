"""The tables of pretraining: lines for every study, the paper's numbers, and ours where it was run."""

from __future__ import annotations

import csv
import json
import re
import runpy
import sys
from pathlib import Path

import pytest

from sinkjax.config_files import documents
from sinkjax.study.choice import choose
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


Lines = dict[tuple[str, str, str], dict[str, str]]


def run(script: dict, monkeypatch: pytest.MonkeyPatch, data: Path, *arguments: str) -> Lines:
    """The lines of the table after the script has run, with logs beside it."""
    arguments += ("--data", str(data), "--images", str(data), "--logs", str(data / "logs"))
    monkeypatch.setattr(sys, "argv", ["pretrain_tables.py", *arguments])
    script["main"]()
    return lines_of(data / "pretraining.csv")


def lines_of(file: Path) -> Lines:
    """The lines of a table, by table, row and column."""
    with file.open(encoding="utf-8", newline="") as opened:
        return {(line["table"], line["row"], line["column"]): line for line in csv.DictReader(opened)}


def numbers(line: dict[str, str]) -> list[float]:
    return [float(line[end]) for end in ("mean", "low", "high")]


def test_what_was_run_stands_beside_the_paper_and_stays_there(script, folder, tmp_path, monkeypatch):
    first = run(script, monkeypatch, tmp_path, str(folder))
    name = "gu-weight-decay"
    assert numbers(first[name, "decay 0", "Sink_1 (%)"]) == pytest.approx([30, -97.1, 157], abs=0.1)
    assert numbers(first[name, "decay 0", "valid loss (nats)"]) == pytest.approx([4.1, 2.83, 5.37], abs=0.01)
    assert first[name, "decay 0", "Sink_1 (%), paper"]["text"] == "15.2"
    assert first[name, "decay 0.1", "seeds"]["text"] == "not run"
    assert first[name, "decay 0.1", "Sink_1 (%), paper"]["text"] == "18.18"
    assert first[name, "decay 0.5", "seeds"]["text"] == "not run"  # its run is not finished
    assert run(script, monkeypatch, tmp_path) == first  # from what is kept


def test_seeds_that_are_trained_later_join_those_that_are_kept(script, folder, tmp_path, monkeypatch):
    run(script, monkeypatch, tmp_path, str(folder))
    for entry in (folder / "decay-0").iterdir():
        entry.unlink()
    (folder / "decay-0").rmdir()
    again, new = curve(1, [5.0, 4.4], 0.4, STEPS), curve(7, [5.0, 4.0], 0.6, STEPS)
    log(folder / "decay-0", [*again, *new], STEPS)
    found = run(script, monkeypatch, tmp_path, str(folder))
    assert found["gu-weight-decay", "decay 0", "seeds"]["text"] == "3 of 3"
    assert numbers(found["gu-weight-decay", "decay 0", "Sink_1 (%)"])[0] == pytest.approx(40)
    first, lines = script["kept_logs"].read("gu-weight-decay/decay-0", tmp_path / "logs")
    assert [entry["seed"] for entry in first["runs"]] == [0, 1, 7]
    assert [(entry["run"], entry["seed"], entry["loss"]) for entry in lines if entry["step"] == STEPS] == [
        (0, 0, 4.0),
        (1, 1, 4.4),  # the later one
        (2, 7, 4.0),
    ]


def test_the_training_of_the_study_of_emergence_is_a_row_of_the_core_table(script, tmp_path, monkeypatch):
    out = tmp_path / "out"
    log(out / "softmax", [*curve(3, [5.0, 4.0], 0.2, STEPS), *curve(4, [5.0, 4.2], 0.4, STEPS)], STEPS)
    (out / "config.yaml").write_text(documents.write("emergence/causal", choose("emergence/causal").config))
    assert run(script, monkeypatch, tmp_path, str(out))["mini", "softmax", "seeds"]["text"] == "2 of 8"
    assert (tmp_path / "pretrain-mini.png").stat().st_size > 0


def test_the_row_of_the_llama_s_block_is_that_of_the_core_table_with_its_own_seeds(script, tmp_path, monkeypatch):
    out = tmp_path / "out"
    log(out / "softmax", [*curve(6, [5.0, 4.0], 0.2, STEPS), *curve(7, [5.0, 4.2], 0.4, STEPS)], STEPS)  # families: 3 to 6
    (out / "config.yaml").write_text(documents.write("emergence/causal", choose("emergence/causal").config))
    found, row = run(script, monkeypatch, tmp_path, str(out)), "Llama (pre-norm, RoPE, SwiGLU)"
    assert found["families", row, "seeds"]["text"] == "1 of 4"
    assert float(found["families", row, "Sink_1 (%)"]["mean"]) == pytest.approx(20)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 100}, "steps 100, .* 3000"),
        ({"weight_decay": 0.2}, "weight_decay 0.2, .* 0"),
        ({"corpus": "other"}, "another text"),
    ],
)
def test_runs_of_another_study_are_not_mixed_in(script, folder, tmp_path, monkeypatch, capsys, change, message):
    run(script, monkeypatch, tmp_path, str(folder))
    path = folder / "decay-0" / LOG
    first, *lines = path.read_text().splitlines()
    header = json.loads(first)
    if "corpus" in change:
        header["data"] = change
    else:
        header["config"] |= change
    path.write_text("\n".join([json.dumps(header), *lines]) + "\n")
    with pytest.raises(SystemExit):
        run(script, monkeypatch, tmp_path, str(folder))
    assert re.search(message, " ".join(capsys.readouterr().err.split()))


def test_another_size_has_a_table_of_its_own(script, folder, tmp_path):
    text = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(text.replace("size: mini", "size: 60m"))
    assert script["read"](folder, tmp_path / "logs")[0] == "pretrain/gu-weight-decay at 60m"


def test_what_is_no_study_is_refused(script, tmp_path, monkeypatch, capsys):
    chosen = choose("trigger/sizes")
    (tmp_path / "config.yaml").write_text(documents.write(chosen.experiment, chosen.config))
    with pytest.raises(SystemExit):
        run(script, monkeypatch, tmp_path, str(tmp_path))
    assert "trigger/sizes" in capsys.readouterr().err


def test_every_study_stands_in_one_of_the_two_tables(script):
    here, small = (
        {table for table, *_ in lines_of(ROOT / "docs/results/data" / f"pretraining{name}.csv")} for name in ("", "-340k")
    )
    for name in {name.removeprefix("pretrain/") for name in script["studies"]()} - {"backcopy"}:  # which has not been run
        assert (name in here) != (name in small), name
