"""The section on edits while training: ratios are to the plain step and the plain forwards, and a goal that is missed says so."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.mark.parametrize(("edited", "evaluated", "said"), [(22.0, 1.2, ("met", "met")), (24.0, 1.4, ("not met", "not met"))])
def test_goals_are_about_ratios(monkeypatch, edited, evaluated, said):
    monkeypatch.syspath_prepend(SCRIPTS)
    bench = importlib.import_module("bench_train_edited")
    steps = {"plain": [20.0, 10.0, 30.0], "key 0 hidden": [edited]}
    text = bench.section(steps, {bench.FORWARD: [1.0], bench.EVALUATE: [evaluated]}, 4096, 0.0)
    assert f"Goal: at most 1.15 times a plain step, {said[0]}." in text
    assert f"Goal: at most 1.3 times plain forwards, {said[1]}." in text
    assert f"| {edited / 20:.3f} |" in text
