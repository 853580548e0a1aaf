"""`sinkjax evaluate` prints what `sinkjax.evaluate` returns."""

from __future__ import annotations

from pathlib import Path

import pytest

import sinkjax
from sinkjax.cli import main as cli
from tests.studies.tiny import write_model

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


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("", "missing from sinkjax evaluate: MODEL, TEXT"),
        ("m t --sinks 4", "--sinks needs --window"),
        ("m t --h2o 4 --window 9", "--h2o and --window are two cache policies"),
    ],
)
def test_mistakes_are_one_sentence(capsys, words: str, sentence: str) -> None:
    assert cli.main(["evaluate", *words.split()]) == 2
    assert sentence in capsys.readouterr().err
