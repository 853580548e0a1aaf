"""The backend for lm-eval: scores as its own `hf` backend gives them, and tables paired by question."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import sinkjax
from sinkjax.errors import SinkjaxError
from sinkjax.interop import lm_eval as backend
from sinkjax.runtime import extras
from tests.study.tiny import write_model

TASKS = ("sinkjax_choice", "sinkjax_last_word", "sinkjax_text", "sinkjax_copy")
QUESTIONS = 12


def result(task: str, metric: str, score: float, values: list[Any]) -> dict[str, Any]:
    """What `lm_eval.simple_evaluate` returns, as far as it is read."""
    samples = [{"doc_id": number, "filter": "none", metric: value} for number, value in enumerate(values)]
    return {"results": {task: {f"{metric},none": score, f"{metric}_stderr,none": "N/A"}}, "samples": {task: samples}}


def test_a_difference_is_paired_by_question() -> None:
    rng = np.random.default_rng(0)
    plain = rng.integers(2, size=40).astype(float)
    worse = np.where(np.arange(40) < 10, 0, plain)
    (row,) = backend.compared(*(result("t", "acc", values.mean(), values.tolist()) for values in (plain, worse)))
    want = sinkjax.intervals.interval(worse - plain)
    assert row["score"] == worse.mean()
    assert row["difference"] == pytest.approx((worse - plain).mean())
    assert (row["low"], row["high"], row["questions"]) == (pytest.approx(want.low), pytest.approx(want.high), 40)


def test_the_perplexity_of_words_is_weighted_by_their_number() -> None:
    rng = np.random.default_rng(1)
    words = rng.integers(5, 20, size=60)
    sums = [-words * rng.uniform(2, 3, size=60), -words * rng.uniform(3, 4, size=60)]
    scores = [math.exp(-each.sum() / words.sum()) for each in sums]
    values = [[(total, count) for total, count in zip(each, words, strict=True)] for each in sums]
    (row,) = backend.compared(*(result("t", "ppl", score, each) for score, each in zip(scores, values, strict=True)))
    assert row["difference"] == pytest.approx(scores[1] - scores[0])
    assert 0 < row["low"] < row["difference"] < row["high"] < 2 * row["difference"]


def test_a_score_that_is_no_mean_has_no_interval() -> None:
    (row,) = backend.compared(result("t", "f1", 0.3, [1.0, 0.0, 1.0]), result("t", "f1", 0.1, [1.0, 0.0, 0.0]))
    assert row["difference"] == pytest.approx(-0.2)
    assert math.isnan(row["low"])
    assert math.isnan(row["high"])


def test_other_questions_are_refused() -> None:
    with pytest.raises(SinkjaxError, match="the two results have other questions of t"):
        list(backend.compared(result("t", "acc", 0.5, [1.0, 0.0]), result("t", "acc", 0.5, [1.0])))


def test_without_lm_eval_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "_is_there", lambda name: name != "lm_eval")
    with pytest.raises(SinkjaxError, match=r"a task of lm-eval needs lm_eval, .*pip install 'sinkjax\[eval\]'"):
        backend.LM("mini-softmax")


def test_each_task_has_its_questions() -> None:
    for name in ("choice", "last_word", "copy"):
        lines = [json.loads(line) for line in (backend.TASKS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
        assert len(lines) >= 100
        assert len({json.dumps(line) for line in lines}) == len(lines)
    for each in (json.loads(line) for line in (backend.TASKS / "last_word.jsonl").read_text(encoding="utf-8").splitlines()):
        assert f" {each['word']}" in f" {each['text']}"  # the text has named it


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = write_model(tmp_path_factory.mktemp("lm_eval") / "model", max_position_embeddings=128)  # some prompts are longer
    (made / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "~"}), encoding="utf-8")
    return made


def scores(model: Any) -> dict[str, Any]:
    return backend.scored(model, TASKS, limit=QUESTIONS)


@pytest.fixture(scope="module")
def ours(folder: Path) -> dict[str, Any]:
    pytest.importorskip("lm_eval")
    with jax.enable_x64(True):
        return scores(backend.LM(str(folder), bos="tokenizer", dtype="float64"))


def test_scores_are_those_of_the_hf_backend(folder: Path, ours: dict[str, Any]) -> None:
    theirs = scores(
        pytest.importorskip("lm_eval.models.huggingface").HFLM(str(folder), device="cpu", dtype="float64", batch_size=4)
    )
    for task in TASKS:
        for one, other in zip(ours["samples"][task], theirs["samples"][task], strict=True):
            if task == "sinkjax_copy":
                assert one["resps"] == other["resps"]
                continue
            for mine, its in zip(one["filtered_resps"], other["filtered_resps"], strict=True):
                assert np.ravel(mine) == pytest.approx(np.ravel(its), rel=1e-7)  # its norms and rotations compute in float32
    for row in backend.compared(theirs, ours):
        assert row["score"] == pytest.approx(row["plain"], rel=1e-6)


def test_batches_change_no_score(folder: Path, ours: dict[str, Any]) -> None:
    pytest.importorskip("lm_eval")
    with jax.enable_x64(True):
        found = scores(backend.LM(str(folder), bos="tokenizer", dtype="float64", batch_size=5))
    for row in backend.compared(ours, found):
        assert row["score"] == pytest.approx(row["plain"], rel=1e-12)


def test_generation_under_bits_and_with_a_cache_runs(folder: Path) -> None:
    pytest.importorskip("lm_eval")
    for options in ({"activations": 8, "keep": (0,)}, {"cache": sinkjax.Streaming(1, 20)}):
        (row,) = backend.compared(*[backend.scored(backend.LM(str(folder), **options), ["sinkjax_copy"], limit=3)] * 2)
        assert (row["questions"], row["difference"]) == (3, 0.0)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1, not 0"),
        ({"max_length": 1000}, "max_length must be None or from 2 to 128"),
        ({"size": 3}, "LM does not know size"),
        ({"weights": 1}, "weights must be None or a number of bits"),
    ],
)
def test_wrong_arguments_are_refused(folder: Path, given: dict[str, Any], says: str) -> None:
    pytest.importorskip("lm_eval")
    with pytest.raises(SinkjaxError, match=says):
        backend.LM(str(folder), **given)


def test_an_unknown_task_is_refused(folder: Path) -> None:
    pytest.importorskip("lm_eval")
    with pytest.raises(SinkjaxError, match=r"unknown task 'sinkjax_choise'"):
        backend.scored(backend.LM(str(folder)), ["sinkjax_choise"])
