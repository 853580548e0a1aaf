"""The clean run: a list that is frozen before it begins, and results that are kept whole or not at all."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from sinkjax.studies.registry import choose

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture
def protocol(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.syspath_prepend(SCRIPTS)
    module = importlib.import_module("protocol")
    data = "docs/results/data"
    (tmp_path / data).mkdir(parents=True)
    shutil.copy(SCRIPTS.parent / data / "claims.csv", tmp_path / data)
    for name, folder in (("PAGE", "protocol.md"), ("KEPT", f"{data}/protocol"), ("RESULTS", "results"), ("DOCS", "docs")):
        monkeypatch.setattr(module, name, tmp_path / folder)
    return module


@pytest.fixture
def checkout(protocol, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A repository of one commit, with two studies."""
    root = tmp_path / "checkout"
    for file in ("sinkjax/a.py", "configs/kiya/mask.yaml", "configs/kiya/all.yaml", "configs/gu/norms.yaml"):
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text("1\n")
    identity = ["-c", "user.name=tests", "-c", "user.email=tests@localhost"]
    for command in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-q", "-m", "first"]):
        subprocess.run(["git", *command], cwd=root, check=True)
    monkeypatch.setattr(protocol, "ROOT", root)
    monkeypatch.setattr(protocol, "planned", lambda run: None if run.study == "gu/norms" else 2e12)
    return root


def test_each_study_of_a_given_model_is_on_the_list_of_both_models(protocol) -> None:
    runs = list(protocol.runs())
    assert len({run.name for run in runs}) == len(runs)
    for model in (protocol.SMOL, protocol.GEMMA):
        named = [run.study for run in runs if run.model == model]
        assert {"kiya/mask", "gu/norms", "li/mediation", "background/windows"} < set(named)
        assert not [study for study in named if choose(study).suite]


def test_nothing_runs_before_the_freeze_or_by_other_code(protocol, checkout) -> None:
    with pytest.raises(SystemExit, match="there is no protocol yet"):
        protocol.check_frozen()
    (checkout / "sinkjax/a.py").write_text("2\n")
    with pytest.raises(SystemExit, match="not committed"):
        protocol.freeze()
    (checkout / "sinkjax/a.py").write_text("1\n")
    protocol.freeze()
    page = protocol.PAGE.read_text()
    assert protocol.head() in page
    assert "| kiya/mask/smollm2-135m-none-wikitext | 2e+12 |" in page
    assert "| gu/norms/gemma3-270m-model-wikitext | refused |" in page
    protocol.check_frozen()
    (checkout / "README.md").write_text("text may change\n")
    protocol.check_frozen()
    with pytest.raises(SystemExit, match="was frozen at"):
        protocol.freeze()
    (checkout / "configs/kiya/mask.yaml").write_text("2\n")
    with pytest.raises(SystemExit, match="differ from the frozen commit"):
        protocol.check_frozen()
    protocol.git("commit", "--quiet", "--all", "--message", "mended")
    with (protocol.KEPT / protocol.FROZEN).open("a") as file:
        file.write(protocol.head())
    protocol.check_frozen()


def test_a_finished_run_keeps_its_tables_and_a_refusal_its_sentence(protocol, monkeypatch) -> None:
    monkeypatch.setattr(protocol, "PROMPTS", 2)
    done = protocol.Run("gu/repeat-bound", "mini-sink", "model", "packaged")
    assert protocol.state(done) == "not run"
    assert protocol.carry_out(done, "").endswith(" s")
    assert protocol.state(done).startswith("done in ")
    claims = [row for row in protocol.read(protocol.DOCS / protocol.CLAIMS) if row["model"] == "mini-sink"]
    summary = protocol.read(protocol.KEPT.parent / protocol.SUMMARY)
    assert {row["study"] for row in claims} == {row["study"] for row in summary} == {done.study}
    (row,) = protocol.read(protocol.KEPT / protocol.RUNS)
    assert json.loads(row["settings"])["prompts"] == 2
    refused = protocol.Run("background/mechanism", "mini-sink", "model", "packaged")
    said = protocol.carry_out(refused, "")
    assert len(said) > 20
    assert protocol.state(refused) == f"refused: {said}"


def test_a_run_that_breaks_off_is_not_done(protocol, monkeypatch) -> None:
    broken = subprocess.CompletedProcess([], 143, "", "stopped; the same command goes on")
    monkeypatch.setattr(protocol.subprocess, "run", lambda *given, **how: broken)
    run = protocol.Run("kiya/mask", "mini-sink", "model")
    with pytest.raises(SystemExit, match="ended with 143:\nstopped"):
        protocol.carry_out(run, "")
    assert protocol.state(run) == "not run"


def test_times_are_summed_over_the_studies_that_run_on_both_models(protocol):
    taken = {
        protocol.Run(study, model, bos): time
        for study, first, second in (("kiya/mask", 100.0, 150.0), ("kiya/self", 300.0, 250.0), ("kiya/rope", 7.0, None))
        for model, bos, time in ((protocol.SMOL, "none", first), (protocol.GEMMA, "model", second))
    }
    taken |= {protocol.Run("gu/norms", protocol.SMOL, "none"): 1.0, protocol.Run("gu/norms", protocol.GEMMA, "model"): 2.0}
    taken[protocol.Run("kiya/self", protocol.GEMMA, "none")] = 575.0
    text = protocol.times(taken)
    assert "| kiya/mask | 100 | 150 | 1.50 |" in text
    assert "kiya/rope" not in text
    assert "| all 2 of kiya/ that run on both | 400 | 400 | 1.00 |" in text
    assert "| all 1 of gu/ that run on both | 1 | 2 | 2.00 |" in text
    assert "gemma3-270m-none-wikitext 575." in text
