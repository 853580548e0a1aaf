"""The page of the queue: when a sink emerges, differences paired by seed, and numbers that are those of the kept logs."""

from __future__ import annotations

import csv

import numpy as np
import pytest
import xarray

SCRIPT = "pretrain_page.py"


STEPS = np.array([0.0, 10, 20, 30, 40])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0, 0, 1, 1, 1], 20),
        ([0, 1, 0, 1, 1], 30),  # an earlier rise that does not last
        ([1, 1, 1, 1, 1], 0),
        ([1, 1, 1, 1, 0], np.inf),
        ([0, 0, 0, 0, 1], 40),
        ([0, np.nan, 1, 1, np.nan], np.inf),  # a run that diverged
    ],
)
def test_the_onset_is_the_step_from_which_a_sink_lasts(script, values, expected):
    assert script["onset"](STEPS, np.array(values, float), 0.5) == expected


@pytest.fixture(scope="module")
def data(script) -> dict[str, xarray.Dataset]:
    """The evaluations of every kept log, read once: there are hundreds."""
    return script["trained"]()


def training(shares: np.ndarray) -> xarray.Dataset:
    """The evaluations of runs whose mean attention to the first token is float[run, point]."""
    received = np.broadcast_to(shares[..., None, None], (*shares.shape, 2, 3))
    return xarray.Dataset(
        {
            "step": (("run", "point"), np.broadcast_to(STEPS, shares.shape)),
            "received": (("run", "point", "layer", "head"), received),
        },
        {"run": np.arange(len(shares)) + 3},
        {"training": {"config": {"normaliser": "softmax"}}},
    )


def test_runs_without_a_sink_are_censored_not_dropped(script):
    shares = np.zeros((4, 5))
    shares[0, 1:] = shares[1, 3:] = 0.4
    found, survival = script["emergence"](training(shares))
    np.testing.assert_array_equal(found, [10, 30, np.inf, np.inf])
    assert survival.quantiles[:2].tolist() == [10, 30]
    np.testing.assert_allclose(survival.probabilities[[0, 1, -1]], [0.75, 0.5, 0.5])


def test_differences_are_of_the_same_seed(script, data):
    base, own = data[script["BASELINE"]], data["mini/sigmoid"]
    shuffled = own.isel(run=np.arange(own.sizes["run"])[::-1])
    first = script["paired"](own, base, "loss")
    np.testing.assert_array_equal(script["paired"](shuffled, base, "loss"), first[::-1])
    seeds = own["run"].values.tolist()
    where = [base["run"].values.tolist().index(seed) for seed in seeds]
    np.testing.assert_allclose(first, own["loss"].values[:, -1] - base["loss"].values[where, -1])


def test_fewer_seeds_than_a_word_takes_have_no_interval(script):
    assert "[" not in script["shown"](np.arange(7.0), 2)
    assert script["shown"](np.arange(8.0), 2) == "3.50 [1.45, 5.55]"  # 3.5 +- 2.365 x 2.449 / sqrt 8
    assert script["shown"](np.full(8, np.nan), 2) == "diverged"


def test_the_committed_table_has_the_numbers_of_the_kept_logs(script, data):
    """Logs may be added before the table is made again; a row that has all of its seeds does not change."""
    with (script["DATA"] / "pretraining-340k.csv").open(encoding="utf-8", newline="") as file:
        kept = {tuple(line.values())[2:] for line in csv.DictReader(file)}
    for row, given in (("mini/head-norm", {"label": "head-wise RMSNorm"}), ("mini/decay-0", {"label": "softmax, decay 0"})):
        cells = dict(zip(script["HEADS"], script["line"](row, given, data), strict=False))
        made = script["as_csv"]({"": script["Table"](list(cells), [list(cells.values())])})
        lines = [line for line in csv.DictReader(made.splitlines()) if line["column"] not in ("the paper", "its loss")]
        own = {tuple(line.values())[2:] for line in lines}
        assert len(own) > 7
        assert own <= kept


def test_a_sink_on_another_key_is_named(script, data):
    """The paper's fixed second token is the sink, and a key bias is."""
    assert script["elsewhere"](data["gu-fixed-token/second"]).endswith(" on token 2")
    assert script["elsewhere"](data["gu-bias/k"]).endswith("] on the bias")
    assert script["elsewhere"](data[script["BASELINE"]]) == "0.0"


def test_a_word_stands_in_the_row_that_is_not_the_baseline(script, data):
    words = script["row_words"](script["judged"](data, ["mini/softmax"]), script["BASELINE"])
    judged = {"no-bos", "sigmoid", "sigmoid-sum", "k-bias", "head-norm", "decay-0"}  # mini/gated has 4 seeds
    assert set(words) == {script["identity"](f"mini/{row}") for row in judged}
