"""`sinkjax evaluate` prints what `sinkjax.evaluate` returns."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import sinkjax
from sinkjax.cli import main as cli
from tests.study.tiny import write_model

TEXT = "the key and the lock of it, and half past two"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evaluate")
    write_model(folder / "model")
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    (folder / "edits.yaml").write_text("edits: [{drop_mlp: {position: 0, layers: 1}}]\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("--activations 4 --scale token --keep 0 1", {"activations": 4, "scale": "token", "keep": (0, 1)}),
        ("--window 6 --sinks 2", {"cache": sinkjax.Streaming(2, 6)}),
        ("--attention-impl fused --kv 4", {"attention_impl": "fused", "kv": 4}),
        ("--h2o 8 --bos none", {"cache": sinkjax.H2O(8), "bos": "none"}),
        ("--key-norm 8", {"cache": sinkjax.KeyNorm(8)}),
        ("--snapkv 8", {"cache": sinkjax.SnapKV(8, window=4)}),
        ("--weights nvfp4 --activations mxfp4 --keep sinks", {"weights": "nvfp4", "activations": "mxfp4", "keep": "sinks"}),
        ("--length 9 --edits {files}/edits.yaml", {"length": 9, "edits": sinkjax.drop_mlp(0, layers=1)}),
    ],
)
def test_it_prints_the_loss(files: Path, capsys, words: str, options: dict) -> None:
    model = str(files / "model")
    assert cli.main(["evaluate", model, str(files / "text.txt"), *words.format(files=files).split()]) == 0
    want = sinkjax.evaluate(sinkjax.load(model), TEXT, **options)
    shown = capsys.readouterr().out
    assert f"{want.loss:.4f}" in shown
    assert str(want.tokens) in shown


def test_it_reads_records_of_a_field_as_documents(files: Path, capsys) -> None:
    lines, path = [TEXT, "half past two, and the lock"], files / "records.jsonl"
    path.write_text("".join(json.dumps({"id": n, "body": line}) + "\n" for n, line in enumerate(lines)), encoding="utf-8")
    command = ["evaluate", str(files / "model"), str(path)]
    assert cli.main([*command, "--field", "body", "--documents", "file"]) == 0
    want = sinkjax.evaluate(sinkjax.load(files / "model"), lines)
    assert f"{want.loss:.4f}" in capsys.readouterr().out
    assert cli.main(command) == 2
    assert re.search("'text'.*'body'; --field", capsys.readouterr().err)
