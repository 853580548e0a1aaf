"""Studies that train their own models: contrasts over seeds, premises, rows and sentences, on planted stores."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import xarray

from sinkjax.study import Lab, Measure, versus
from sinkjax.study.lab import Study
from sinkjax.study.numbers import Numbers
from sinkjax.study.prose import Prose
from sinkjax.study.results import on_stores, verdicts
from sinkjax.study.settings import Trains
from sinkjax.study.trained import attains, rows
from sinkjax.study.work import TrainingSpec

SEEDS = 8
SINK = Measure("weight on BOS", lambda data: np.asarray(data["sink"].values), range=(0.0, 1.0))
LOSS = Measure("loss", lambda data: np.asarray(data["loss"].values), log=True)


@dataclass(frozen=True, kw_only=True)
class Settings(Trains):
    """The shared settings."""


def study(lab: Lab, s: Settings) -> None:
    given: Any = SimpleNamespace()
    spec = {name: TrainingSpec(name, given, given, lambda trained: xarray.Dataset()) for name in ("softmax", "relu", "other")}
    softmax = lab.train("softmax", spec["softmax"], "with softmax", paper={"loss": 0.5})
    relu = lab.train("relu", spec["relu"], compared=True)
    other = lab.train("other", spec["other"])
    lab.summary(SINK, LOSS)
    lab.claim("sinks", "a theorem", versus(SINK, softmax, relu))
    lab.claim("fewer", "a theorem", versus(SINK, relu, softmax), sign=-1)
    lab.claim("above", "a table", versus(SINK, softmax, 0.95), attains(SINK, softmax, least=0.5))
    lab.claim("untested", "a table", versus(SINK, softmax, 0.1), attains(SINK, relu, least=0.5))
    lab.claim("not trained", "a table", versus(SINK, softmax, other))
    lab.claim("loss", "a table", versus(LOSS, softmax, relu))


STUDY = Study("own/trains", study, Settings, Prose(), True, "")


def store(sink: float, loss: float, outcome: str = "converged", seeds: int = SEEDS) -> xarray.Dataset:
    noise = np.random.default_rng(int(100 * sink)).uniform(-0.01, 0.01, seeds)
    columns = {"sink": sink + noise, "loss": loss * np.exp(noise), "outcome": [outcome] * seeds, "steps": [7] * seeds}
    variables = {name: ("run", values) for name, values in columns.items()}
    return xarray.Dataset(variables, {"run": np.arange(seeds)}, {"sweep": {"config": {}}})


def results(**stores: xarray.Dataset) -> tuple[Lab, Numbers]:
    lab = STUDY.trace(Settings(seeds=SEEDS), None)
    return lab, on_stores(lab, stores)


@pytest.fixture(scope="module")
def found() -> tuple[Lab, Numbers]:
    return results(softmax=store(0.9, 2.0), relu=store(0.02, 1.0))


def test_trainings_are_compared_by_seed(found):
    words = {one.name: one.judgement.word for one in verdicts(*found)}
    assert words == {
        "sinks": "replicates", "fewer": "replicates", "above": "opposite", "untested": "not applicable",
        "not trained": "not applicable", "loss": "replicates",
    }  # fmt: skip
    judged = {one.name: one.judgement for one in verdicts(*found)}
    assert judged["sinks"].D.mean == pytest.approx(0.88, abs=0.02)
    assert judged["sinks"].S.mean == pytest.approx(0.98, abs=0.02)
    assert judged["loss"].D.mean == pytest.approx(np.log(2), abs=0.02)
    assert "0.5" in judged["untested"].reason
    assert judged["not trained"].reason == "other was not trained"


def test_the_summary_has_each_training_the_papers_number_and_each_run(found):
    table = {(row.condition, row.measure): row for row in rows(*found)}
    assert table["with softmax", "weight on BOS"].value.mean == pytest.approx(0.9, abs=0.01)
    assert table["with softmax", "loss, paper"].value.note == "0.5"
    assert table["relu", "loss, paper"].value.note == "-"
    assert table["relu", "weight on BOS"].effect.mean == pytest.approx(-0.88, abs=0.02)
    assert table["other", "seeds"].value.note == "not run"
    assert table["with softmax, seed 3", "loss"].value.mean == pytest.approx(2.0, rel=0.02)
