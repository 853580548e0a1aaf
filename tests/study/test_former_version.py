"""What users of 0.3.0 have is read: a finished study is reported with the same numbers, a training and a saved model are loaded.

`v0.3.0.tar.xz` was made by commit 030ddcd8, the release:

    sinkjax run kiya/rope --model mini-softmax --prompts 2 --length 12 --positions 1 3 --indices 4 --tokens 3 --controls 2 \
        --no-twin
    sinkjax train trigger/softmax-1l1h --seeds 1 --steps 4 --batch 4

and `sinkjax.save` of a model with a learned key and value, whose field had another name. Without figures and page.
"""

from __future__ import annotations

import csv
import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

import sinkjax
from sinkjax.cli import main as cli
from sinkjax.model.attention_bias import KeyValueBias
from sinkjax.tasks.registry import load_runs

KEPT = Path(__file__).with_name("v0.3.0.tar.xz")
LOGITS = [2.608284, -1.281448, -1.455038, 0.208822]  # the first, of the last of the tokens 0 to 7, as 0.3.0 computed them


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    with tarfile.open(KEPT) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def words(claims: str) -> dict[str, tuple[str, str]]:
    return {row["claim"]: (row["word"], row["contrast"]) for row in csv.DictReader(io.StringIO(claims))}


def test_a_finished_study_is_reported_with_the_same_numbers(kept):
    summary, before = (kept / "study" / "summary.csv").read_text(), words((kept / "study" / "claims.csv").read_text())
    assert cli.main(["report", str(kept / "study")]) == 0
    assert (kept / "study" / "summary.csv").read_text() == summary
    assert (kept / "study" / "report.html").exists()
    after = words((kept / "study" / "claims.csv").read_text())
    assert after.pop("sink")[0] == "not applicable"  # its premise now compares with the untrained twin, which has not run
    assert after == {name: before[name] for name in ("bos", "distance", "activation")}


def test_a_finished_training_is_loaded(kept):
    last = json.loads((kept / "run" / "log.jsonl").read_text().splitlines()[-1])
    found = load_runs(kept / "run")
    ((name, (run,)),) = found.groups().items()
    assert (name, run.steps) == (("softmax", 1e-3), last["step"])
    assert {leaf: array.shape for leaf, array in found.of(0)["layers"].items()} == {
        **dict.fromkeys("qkv", (1, 16, 1, 16)), "o": (1, 1, 16, 16)
    }  # fmt: skip


def test_a_saved_model_is_loaded(kept):
    assert "attention_bias" in json.loads((kept / "model" / "config.json").read_text())
    model = sinkjax.load(kept / "model")
    assert model.config.kv_bias == KeyValueBias()
    logits = sinkjax.forward(model.params, np.arange(8)[None], model.config).logits
    np.testing.assert_allclose(np.asarray(logits)[0, -1, :4], LOGITS, rtol=1e-5)
