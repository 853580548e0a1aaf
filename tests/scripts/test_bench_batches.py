"""The section on random bits: what is compared with what, and which verdict follows."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.mark.parametrize(
    ("threefry", "said"),
    [
        (2.0, "saves 50% at 1 x 1: so it is worth its lines"),
        (1.1, "saves 9% at 1 x 1: less than the 20% that would be worth its lines"),
    ],
)
def test_the_verdict_is_that_of_the_share_of_a_step_that_is_saved(monkeypatch, threefry, said):
    monkeypatch.syspath_prepend(SCRIPTS)
    bench = importlib.import_module("bench_batches")
    times = {"1 x 1": {bench.NONE: [0.8], bench.OURS: [1.0, 0.9, 3.0], "threefry": [threefry], "rbg": [1.5]}}
    text = bench.section(times, 0.0)
    assert said in text
    assert "| 1 x 1 | rbg | 1.5 (1.5 to 1.5) | +50% |" in text
    assert "| 1 x 1 | one batch, drawn once | 0.8 (0.8 to 0.8) | -20% |" in text
