"""The section on pretraining: what it divides by what, and that no time counts for numbers that differ."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts" / "benchmarks"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    return importlib.import_module("bench_train")


@pytest.fixture
def about(bench):
    """A machine of 100 GFLOP/s, and a mini model of 1 MFLOP a token."""
    parts = {"loss": 10.0, "gradient": 30.0, "optimiser": 1.0, "gflops": 100.0}
    sizes = {"mini": {"difference": 1e-6, "parts": {"": parts}, "parameters": 1_000_000, "flops": 1e6}}
    return {"effort": bench.QUICK, "products": 100.0, "versions": {"jax": "1"}, "load": 0.0, "sizes": sizes}


def test_rates_and_ratios_are_taken_within_a_round_and_the_goal_from_the_faster_peer(bench, about):
    times = {
        ("mini", bench.OURS): [2048 / 50, 4096 / 50],  # of 2048 tokens: 50,000 and 25,000 tokens a second
        ("mini", bench.SEEDS): [2048 / 80, 4096 / 80],
        ("mini", bench.EAGER): [3 * 2048 / 50, 3 * 4096 / 50],
        ("mini", bench.COMPILED): [2 * 2048 / 50, 2 * 4096 / 50],
    }
    text = bench.section(about, times)
    assert "| mini, sinkjax | 61.4 (41 to 81.9) | 33,333 | 33% |  |" in text
    assert "| mini, PyTorch | 184 (123 to 246) | 11,111 | 11% | 3.00 |" in text
    assert "| mini, sinkjax | at least 1.5 | 2.00 (2.00 to 2.00) | met | 6.00 |" in text  # FLOPs take 20.48 ms, the peer 122.9
    assert "| mini, sinkjax, a seed for each core |  | 3.20 (3.20 to 3.20) |  | 6.00 |" in text
    times["mini", bench.COMPILED] = [1.4 * taken for taken in times["mini", bench.OURS]]
    assert "1.40 (1.40 to 1.40) | missed" in bench.section(about, times)
    del times["mini", bench.COMPILED]
    assert "3.00 (3.00 to 3.00) | met" in bench.section(about, times)
    assert "no C++ compiler" in bench.section(about, times)


def test_parts_are_shares_of_the_rate_measured_with_them(bench, about):
    parts = {"loss": 4.0, "gradient": 14.0, "optimiser": 1.0, "gflops": 100.0}  # of 1,024 tokens: 10.24 ms
    about["sizes"]["60m"] = {"flops": 1e6, "parts": {"": parts, bench.HUGE: parts | {"gradient": 12.8}}}
    text = bench.parts_table(about["sizes"])
    assert "| mini, sinkjax | 10.0 | 30.0 | 1.0 | 68% | 68% |  |" in text
    assert "| 60m, sinkjax | 4.0 | 14.0 | 1.0 | 85% | 73% | missed |" in text
    assert "| 60m, sinkjax, huge pages | 4.0 | 12.8 | 1.0 | 85% | 80% | met |" in text


@pytest.mark.parametrize(("loss", "gradient", "fits"), [(2.0, 3.0, True), (2.001, 3.0, False), (2.0, 3.001, False)])
def test_no_time_counts_unless_loss_and_gradient_agree(bench, tmp_path, loss, gradient, fits):
    class Side:
        def ask(self, job, save=None, **values):
            if save is not None:
                np.savez(save, loss=2.0, gradient=3.0)
            return {"loss": loss, "gradient": gradient}

    if fits:
        assert bench.agreement(Side(), Side(), tmp_path, "mini") == 0
    else:
        with pytest.raises(SystemExit, match="mini: loss or gradient "):
            bench.agreement(Side(), Side(), tmp_path, "mini")
