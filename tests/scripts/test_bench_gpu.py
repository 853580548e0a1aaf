"""The benchmark for GPUs: every part at toy size on any device, and its judgement."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts" / "benchmarks"
SWEEP = {"sweep": [100.0, 120.0, 110.0], "calls": [100.0, 100.0, 100.0], "tokens": 4096, "flops": 5e10}


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    return importlib.import_module("bench_gpu")


def test_every_part_is_measured_at_toy_size(bench, monkeypatch, capsys):
    """In this process, to save seven imports; the study has two processes of its own."""
    monkeypatch.setattr(bench, "in_process", lambda name, quick: json.loads(json.dumps(bench.PARTS[name](quick))))
    bench.main(["--quick"])
    lines = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in capsys.readouterr().out.splitlines()]
    found = {name: rest for name, *rest in lines}
    for name in (
        "sweep, 2 x 16 (ms)",
        "sweep, 2 x 16, transformers (ms)",
        "sweep, 2 x 16, times its calls alone",
        "60m, loss and gradient, times PyTorch's",
        "60m, loss and gradient, first call with compilation (s)",
        "sweep/first-key, empty compilation cache (s)",
        "sweep/first-key, full compilation cache (s)",
        "untrained weights (s)",
        "load from disk, share of the reading rate (%)",
    ):
        assert float(found[name][0].split(" ")[0].replace(",", "")) > 0, name


def test_each_goal_is_judged(bench):
    of_device = {"device": "a GPU", "rate": 1e12, "jax": "1"}
    training = {"taken": [10.0], "compiled": 61.0, "flops": 4e9, **of_device}
    found = {
        "sweeps": {"sizes": {"64 x 64": SWEEP, "16 x 64": SWEEP | {"tokens": 1024}}, **of_device},
        "transformers": {"sizes": {"64 x 64": 330.0}},
        "60m": training,
        "60m-PyTorch": {"milliseconds": 8.0},
        "1b": training,
        "study": {"name": "kiya/mask", "seconds": {"empty": 40.0, "full": 21.0}},
        "untrained": {"seconds": 4.0},
    }
    rows = {one.measure: (one.value, one.goal, one.bound, one.met) for one in bench.judged(found)}
    assert rows["sweep, 64 x 64, times as fast as transformers"] == ("3.00", "at least 3", "6.60", "met")
    assert rows["sweep, 64 x 64, share of its bound (%)"] == ("45", "at least 55", "", "missed")
    assert rows["sweep, 16 x 64, share of its bound (%)"] == ("45", "", "", "")  # too few tokens to fill a GPU
    assert "sweep, 16 x 64, transformers (ms)" not in rows
    assert rows["sweep, 64 x 64, times its calls alone"] == ("1.10", "at most 1.1", "", "met")
    assert rows["60m, loss and gradient, times PyTorch's"] == ("1.25", "at most 1.1", "", "missed")
    assert rows["60m, loss and gradient, share of the product's rate (%)"] == ("40", "at least 35", "", "met")
    assert rows["1b, loss and gradient, share of the product's rate (%)"] == ("40", "at least 50", "", "missed")
    assert rows["1b, loss and gradient, first call with compilation (s)"][-1] == "missed"
    assert rows["kiya/mask, empty compilation cache (s)"][1::2] == ("at most 45", "met")
    assert rows["kiya/mask, full compilation cache (s)"][1::2] == ("at most 20", "missed")
    assert rows["untrained weights (s)"][1::2] == ("at most 5", "met")


def test_what_was_measured_is_kept_and_what_fails_is_named(bench, monkeypatch, tmp_path):
    def part(name, quick):
        asked.append(name)
        if name != "sweeps":
            raise RuntimeError("out of memory")
        return {"sizes": {"64 x 64": SWEEP}, "device": "a GPU", "rate": 1e12, "jax": "1"}

    asked: list[str] = []
    monkeypatch.setattr(bench, "in_process", part)
    monkeypatch.setattr(bench, "KEPT", tmp_path / "kept")
    page = tmp_path / "results" / "page.md"
    for _ in range(2):
        bench.main(["--page", str(page)])
    assert asked.count("sweeps") == 1
    assert asked.count("60m") == 2
    assert "Not measured: 60m (out of memory)." in page.read_text()
    assert "sweep, 64 x 64 (ms)" in (tmp_path / "results/data/benchmarks.csv").read_text()


def test_a_full_part_does_not_run_on_a_cpu(bench):
    with pytest.raises(SystemExit, match="no GPU here"):
        bench.main(["--part", "untrained"])
