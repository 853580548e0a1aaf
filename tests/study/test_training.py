"""Studies that train their own models: from a config to a page, resumable, planned, alone and as a suite."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import xarray

from sinkjax.analysis import intervals
from sinkjax.analysis.summary import Row
from sinkjax.errors import SinkjaxError
from sinkjax.model.config import Config
from sinkjax.study import registry, results, run, suite, trained
from sinkjax.study.lab import Lab, Study
from sinkjax.study.numbers import Numbers
from sinkjax.study.prose import Prose
from sinkjax.study.registry import Chosen, choose
from sinkjax.study.settings import Trains
from sinkjax.study.work import TrainingSpec
from sinkjax.sweeps.header import HEADER
from sinkjax.train.trained import Trained
from tests.train import linear
from tests.train.linear import Linear


@dataclass(frozen=True, kw_only=True)
class Regressions(Trains):
    """Linear regressions of two batch sizes."""

    steps: int = 60
    """of a run"""
    batches: tuple[int, ...] = (8, 32)
    """sequences of a step"""


def measure(trained: Trained) -> xarray.Dataset:
    """The first weight of each run: it should be 1."""
    return xarray.Dataset({"weight": ("run", np.asarray(trained.params["w"])[:, 0])})


def lines(architecture: Config) -> Study:
    """A study of two trainings."""

    def study(lab: Lab, s: Regressions) -> None:
        for batch in s.batches:
            stated = Linear(seeds=s.seeds, steps=s.steps, seed=s.seed, batch=batch, learning_rates=(0.1,))
            lab.train(f"batch-{batch}", TrainingSpec(f"batch-{batch}", stated, architecture, measure))
        lab.describe("weights", "a theorem", rows)

    return Study("made-up/lines", study, Regressions, Prose("Lines", "A claim."), True, "")


def rows(read: Numbers) -> list[Row]:
    return [Row(name, "models", "weight", intervals.interval(data["weight"].values)) for name, data in read.trained.items()]


@pytest.fixture
def chosen(tiny_config: Config, monkeypatch: pytest.MonkeyPatch) -> Chosen:
    """A made-up study, known to the registry and to suites."""
    linear.register()
    declared = registry.declared()
    monkeypatch.setattr(registry, "declared", lambda: {"kiya/mask": declared["kiya/mask"]})
    monkeypatch.setattr(registry, "_registered", {"made-up/lines": lines(tiny_config)})
    config = Regressions(seeds=3, steps=60)
    monkeypatch.setattr(suite, "by_name", lambda name: Chosen(name, config) if name == "made-up/lines" else choose(name))
    return Chosen("made-up/lines", config)


def test_a_run_leaves_trainings_stores_and_a_page(chosen, tmp_path):
    section = run.carry_out(chosen, tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "config.yaml",
        "batch-8",
        "batch-8.zarr",
        "batch-32",
        "batch-32.zarr",
        "claims.csv",
        "summary.csv",
        "report.html",
    }
    (first, second) = section.rows
    assert first.value.n == second.value.n == 6  # two variants of three seeds
    assert (tmp_path / "out" / "batch-32" / "log.jsonl").is_file()
    assert (tmp_path / "out" / "summary.csv").read_text().startswith("model,group")
    assert "95% interval over seeds" in (tmp_path / "out" / "report.html").read_text()


def test_an_interrupted_run_goes_on_with_the_training_that_was_cut_short(chosen, tmp_path, monkeypatch):
    whole = run.carry_out(chosen, tmp_path / "whole")
    train, calls = trained.train, []

    def interrupted(spec: Linear, *rest: Any) -> Trained:
        calls.append(spec.batch)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return train(spec, *rest)

    monkeypatch.setattr(trained, "train", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run.carry_out(chosen, tmp_path / "out")
    assert results.build(chosen, tmp_path / "out").rows == whole.rows[:1]
    assert run.carry_out(chosen, tmp_path / "out").rows == whole.rows
    assert calls == [8, 32, 32]


def test_a_store_of_other_numbers_is_refused(chosen, tmp_path):
    run.carry_out(chosen, tmp_path / "out")
    store = tmp_path / "out" / "batch-8.zarr"
    for file in (store / ".zattrs", store / ".zmetadata"):
        file.write_text(file.read_text().replace('"steps": 60', '"steps": 61'))
    (store / HEADER).unlink()  # another copy of these
    with pytest.raises(SinkjaxError, match=r"training.steps was 61, now 60"):
        run.carry_out(chosen, tmp_path / "out")
    with pytest.raises(SinkjaxError, match="seeds was 3, now 2"):
        run.carry_out(Chosen(chosen.experiment, Regressions(seeds=2, steps=60)), tmp_path / "out")
