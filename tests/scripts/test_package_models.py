"""scripts/package_models.py: a run of a training becomes a small model, whose card says what it does as it is stored."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

import sinkjax
from sinkjax.tasks import train
from sinkjax.tasks.language_model.config import Pretrain

SCRIPT = Path(__file__).parents[2] / "scripts" / "package_models.py"
TINY = {"layers": 1, "width": 16, "heads": 2, "mlp_width": 24, "context": 24, "vocabulary": 300}


def test_a_run_becomes_a_model_in_half_precision(tmp_path, monkeypatch, capsys):
    config = Pretrain(**TINY, batch=4, steps=4, eval_every=2, eval_batch=4, seeds=2, warmup=2)
    done = train(config, tmp_path / "training", progress=False)
    command = [str(SCRIPT), str(done.folder), "1", "small", "--out", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", command)
    runpy.run_path(str(SCRIPT), run_name="__main__")
    model = sinkjax.load(tmp_path / "out" / "small")
    half = np.asarray(done.of(1)["layers"]["q"]).astype(np.float16)
    np.testing.assert_array_equal(model.params["layers"]["q"], half)
    card = (tmp_path / "out" / "small" / "README.md").read_text(encoding="utf-8")
    assert "run 1 (seed 1" in card
    assert "As stored: loss 5." in card
    assert " bytes" in capsys.readouterr().out

    monkeypatch.setattr(sys, "argv", [*command[:2], "2", *command[3:]])
    with pytest.raises(SystemExit):
        runpy.run_path(str(SCRIPT), run_name="__main__")
    assert "unknown run 2; allowed: 0, 1" in capsys.readouterr().err
