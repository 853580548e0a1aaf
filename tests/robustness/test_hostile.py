"""Files and names made to cost time or memory: one sentence, in seconds."""

from __future__ import annotations

import contextlib
import io
import json
import os
import time

import pytest

import sinkjax
from sinkjax import SinkjaxError
from sinkjax.cli.main import main
from sinkjax.data.corpora import passages
from sinkjax.study.registry import open_own
from tests.study.tiny import write_model

SECONDS = 5.0  # of processor time


def refused(call, *said):
    begun = time.process_time()
    with pytest.raises(SinkjaxError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 10_000
    assert all(part in message for part in said), message
    assert time.process_time() - begun < SECONDS


def five_gigabytes(path) -> None:
    path.touch()
    os.truncate(path, 5 * 10**9)  # sparse


def command(*arguments):
    """A command as a call: `cli.main` prints the sentence that is wanted here."""
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        assert main([*map(str, arguments)]) == 2
    raise SinkjaxError(errors.getvalue().strip())


@pytest.mark.parametrize("made", [os.mkfifo, os.mkdir, five_gigabytes], ids=("pipe", "folder", "huge"))
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json"])
def test_a_pipe_a_folder_or_a_huge_file_in_a_model_is_refused(made, name, tmp_path) -> None:
    folder = write_model(tmp_path / "model")
    if name in ("tokenizer.model", "vocab.json"):
        (folder / "tokenizer.json").unlink()
    (folder / name).unlink(missing_ok=True)
    made(folder / name)
    refused(lambda: sinkjax.load(folder), name, str(folder))


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("model.gguf", sinkjax.load),
        ("study.yaml", open_own),
        ("study.py", lambda path: command("run", path)),
        ("config.yaml", lambda path: command("report", path.parent)),
        ("text.txt", lambda path: passages(path, 1)),
        ("text.txt", lambda path: command("evaluate", "mini-softmax", path)),
        ("edits.yaml", lambda path: command("train", "pretrain/baseline", "--edits", path)),
    ],
    ids=("gguf", "study", "program", "run", "prompts", "evaluate", "edits"),
)
@pytest.mark.parametrize("made", [os.mkfifo, os.mkdir, five_gigabytes], ids=("pipe", "folder", "huge"))
def test_a_pipe_a_folder_or_a_huge_file_that_is_named_is_refused(made, name, call, tmp_path) -> None:
    made(tmp_path / name)
    refused(lambda: call(tmp_path / name), str(tmp_path))


def test_a_tokenizer_of_3_million_pieces_is_refused(tmp_path) -> None:
    folder = write_model(tmp_path / "model")
    values = json.loads((folder / "tokenizer.json").read_text())
    pieces = [{"SpecialToken": {"id": "a", "type_id": 0}}] * 2_000_000
    special = {"a": {"id": "a", "ids": [0], "tokens": ["a"]}}
    values["post_processor"] = {"type": "TemplateProcessing", "single": pieces, "pair": [], "special_tokens": special}
    (folder / "tokenizer.json").write_text(json.dumps(values))
    refused(lambda: sinkjax.load(folder), " parts", "at most 200,000")
