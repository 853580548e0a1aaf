"""A protocol is frozen once, runs only the frozen code, and changes no table before a study is done on all of its models."""

from __future__ import annotations

import gzip
import json
import lzma
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

SCRIPT = "protocol.py"
PLAN = """
text: wikitext
prompts: 3
split: all
models: {mini-softmax: model, mini-head-norm: model}
studies:
  kiya/mask:
  kiya/self: {positions: [3, 8]}
  li/variance: {prompts: null, control_prompts: null}
without: [[kiya/self, mini-head-norm]]
"""
SUMMARY = "edit,group,measure,mean\nno edit,,loss,{}\n"


@pytest.fixture
def protocol(script, tmp_path, monkeypatch):
    """The script on a plan and folders of its own."""
    names = script["publish"].__globals__
    (tmp_path / "plan.yaml").write_text(PLAN)
    for name, path in (
        ("PLAN", "plan.yaml"), ("DOCS", "docs"), ("KEPT", "docs/results/data/protocol-0.4"),
        ("MENDED", "docs/results/data/mended"), ("RESULTS", "results"), ("PAGE", "docs/results/protocol-0.4.md"),
        ("FROZEN", "docs/results/data/protocol-0.4/commit.txt"),
    ):  # fmt: skip
        monkeypatch.setitem(names, name, tmp_path / path)
    monkeypatch.setitem(names, "measured_by", lambda commit: commit)
    return SimpleNamespace(**names)


def test_options_are_those_of_the_plan(protocol):
    runs = {run.name: run.arguments("FILE", "all") for run in protocol.runs()}
    assert list(runs) == [
        "kiya-mask-mini-softmax", "kiya-mask-mini-head-norm", "kiya-self-mini-softmax",
        "li-variance-mini-softmax", "li-variance-mini-head-norm",
    ]  # fmt: skip
    assert " ".join(runs["kiya-self-mini-softmax"]) == (
        "kiya/self --model mini-softmax --bos model --text FILE --split all --prompts 3 --control-prompts 3 --positions 3 8"
    )
    assert "--prompts" not in runs["li-variance-mini-softmax"]


def test_nothing_runs_before_the_freeze(protocol):
    with pytest.raises(SystemExit, match="there is no protocol yet"):
        protocol.frozen_commit()


def test_another_list_than_the_frozen_does_not_run(protocol):
    head = protocol.git("rev-parse", "HEAD")
    protocol.FROZEN.parent.mkdir(parents=True)
    protocol.FROZEN.write_text(head)
    with pytest.raises(SystemExit, match=f"differs from that of the frozen commit {head}"):
        protocol.frozen_commit()
    protocol.PLAN.write_text(protocol.git("show", f"HEAD:{protocol.LISTED}"))
    assert protocol.frozen_commit() == head


def test_runs_use_the_frozen_code(protocol):
    head = protocol.git("rev-parse", "HEAD")
    folder = protocol.code(head)
    assert (folder / "sinkjax" / "__init__.py").read_text().strip() == protocol.git("show", f"{head}:sinkjax/__init__.py")
    assert (folder / "configs").is_dir()
    assert protocol.code(head) == folder


def test_a_study_is_published_when_its_models_are_done(protocol):
    tables = protocol.DOCS / "results" / "data"
    (tables / "protocol").mkdir(parents=True)
    (tables / "claims.csv").write_text("study,model,bos,text,claim,word\nkiya/mask,mini-softmax,model,wikitext,old,absent\n")
    named = "study,model,bos,text," + SUMMARY.format(1).replace("\nno", "\nkiya/mask,mini-softmax,model,wikitext,no")
    (tables / "protocol" / "summary.csv.xz").write_bytes(lzma.compress(named.encode()))
    masked, masked_too, isolated, *others = protocol.runs()
    keep(protocol, masked)
    with pytest.raises(SystemExit, match="no study is done"):
        protocol.publish()
    keep(protocol, isolated)
    protocol.publish()
    assert published(protocol) == [("kiya/mask", "mini-softmax", "old", "1"), ("kiya/self", "mini-softmax", "new", "2")]
    for run in (masked_too, *others):
        keep(protocol, run)
    protocol.publish()
    assert published(protocol) == sorted((run.study, run.condition.model, "new", "2") for run in protocol.runs())
    assert {protocol.state(run) for run in protocol.runs()} == {"done in 5 s at 01234567"}


def test_a_finished_run_that_no_list_has_is_kept_and_published(protocol, tmp_path):
    run = protocol.runs()[0]
    keep(protocol, run)
    made = protocol.kept(run)
    (made / "config.yaml").write_text("experiment: own/study\n" + (made / "config.yaml").read_text())
    (made / "summary.csv").write_bytes(gzip.decompress((made / "summary.csv.gz").read_bytes()))
    protocol.adopt(made, "0123", 7.4)
    kept = protocol.MENDED / f"own-study-{run.condition.model}"
    assert json.loads((kept / "run.json").read_text()) == {"seconds": 7, "commit": "0123"}
    assert (kept / "claims.csv").read_bytes() == (made / "claims.csv").read_bytes()


def published(protocol):
    """Each row's study, model, claim and mean in the tables."""
    tables = protocol.DOCS / "results" / "data"
    means = {(row["study"], row["model"]): row["mean"] for row in protocol.read(tables / "protocol" / "summary.csv.xz")}
    rows = protocol.read(tables / "claims.csv")
    return sorted((row["study"], row["model"], row["claim"], means[row["study"], row["model"]]) for row in rows)


def keep(protocol, run):
    """What a finished run leaves."""
    folder = protocol.kept(run)
    folder.mkdir(parents=True)
    measured = run.condition
    (folder / "config.yaml").write_text(f"model: {measured.model}\nbos: {measured.bos}\ntext: {measured.text}\n")
    (folder / "claims.csv").write_text(f"study,model,claim,word\n{run.study},{measured.model},new,replicates\n")
    (folder / "summary.csv.gz").write_bytes(gzip.compress(SUMMARY.format(2).encode()))
    (folder / "run.json").write_text(json.dumps({"seconds": 5, "commit": "0123456789"}))


@pytest.fixture
def studies(protocol, monkeypatch):
    """`sinkjax run`, as something that writes what a run leaves. Returns {"rc": its exit status}."""
    made = {"rc": 0}

    def run(command, cwd, check, **_):
        if made["rc"]:
            raise subprocess.CalledProcessError(made["rc"], command)
        out = Path(command[command.index("--out") + 1])
        out.mkdir(parents=True)
        (out / "config.yaml").write_text("experiment: kiya/mask\ntext: /somewhere\n")
        (out / "claims.csv").write_text(f"{cwd.name}: claims\n")
        (out / "summary.csv").write_text(SUMMARY.format(1))

    monkeypatch.setattr(protocol.subprocess, "run", run)
    monkeypatch.setitem(protocol.carry_out.__globals__, "code", lambda commit: Path(commit))
    return made


def test_a_run_is_repeated_and_its_first_numbers_stay(protocol, studies):
    run, *_ = protocol.runs()
    with pytest.raises(SystemExit, match="is not done"):
        protocol.repeat(run, "FILE", "89abcdef")
    protocol.carry_out(run, "FILE", "01234567")
    for commit in ("89abcdef", "fedcba98"):
        protocol.repeat(run, "FILE", commit)
        assert (protocol.kept(run) / "claims.csv").read_text() == f"{commit}: claims\n"
        assert (protocol.KEPT / "replaced" / run.name / "claims.csv").read_text() == "01234567: claims\n"
        with pytest.raises(SystemExit, match=f"is done with the code of {commit}"):
            protocol.repeat(run, "FILE", commit)
    assert "/somewhere" not in (protocol.kept(run) / "config.yaml").read_text()


def test_a_repeat_that_is_interrupted_leaves_the_first_run(protocol, studies):
    run, *_ = protocol.runs()
    protocol.carry_out(run, "FILE", "01234567")
    studies["rc"] = 1
    with pytest.raises(subprocess.CalledProcessError):
        protocol.repeat(run, "FILE", "89abcdef")
    assert protocol.state(run).endswith("at 01234567")
    assert (protocol.kept(run) / "claims.csv").read_text() == "01234567: claims\n"


def test_a_study_waits_while_its_models_have_code_of_two_commits(protocol, studies):
    one, other, *_ = protocol.runs()
    for run, commit in ((one, "01234567"), (other, "89abcdef")):
        protocol.carry_out(run, "FILE", commit)
    with pytest.raises(SystemExit, match="no study is done"):
        protocol.publish()
