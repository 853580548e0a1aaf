"""The page of rates: words wait for all seeds, and a row is judged at its own best rate."""

from __future__ import annotations

import pytest

SCRIPT = "rates.py"


def entry(seed, attention=0.3, loss=3.0, fields=None, outcome="all steps"):
    """What is kept of a run."""
    card = {"bos": {"by key": {"rate": [attention]}}}
    end = {"loss": loss, "received": [[attention]]}
    return {
        "seed": seed,
        "outcome": outcome,
        "end": end,
        "card": None if outcome == "diverged" else card,
        "fields": fields or {},
    }


@pytest.fixture
def kept(script):
    """The runs that choose a rate; Muon has the lowest loss at its second rate, the others at their first."""
    runs = script["queue_runs"]
    rates = {row: own["rates"] for row, own in runs.plan()["chance"].items()}
    found = {}
    for run in runs.tried_rates(runs.plan()["chance"]):
        row, rate = run.row.removeprefix("chance/").split("@")
        best = float(rate) == rates[row][row == "muon"]
        found[run.row, run.seed] = entry(run.seed, loss=2.0 if best else 3.0, fields=dict(run.fields))
    return found


def with_best(script, kept, **attention):
    """The runs, with those at the best rates. attention: of rows; any other gets as much as AdamW, with some noise."""
    runs = script["queue_runs"]
    best = runs.best_rates(list(runs.tried_rates(runs.plan()["chance"])), kept)
    named = [(run, run.row.removeprefix("chance/")) for run in best]
    return kept | {
        (run.row, run.seed): entry(
            run.seed, attention=attention.get(row, 0.3) + run.seed / (1000 + len(row)), fields=dict(run.fields)
        )
        for run, row in named
    }


def words(script, done):
    table = script["judged_table"](script["at_best"](done))
    return {line.split("|")[1].strip(): line.split("|")[-2].strip() for line in table.splitlines()[2:]}


def test_no_word_before_every_row_has_all_seeds(script, kept):
    done = with_best(script, kept)
    assert words(script, done)
    assert not words(script, kept)
    assert not words(script, {key: value for key, value in done.items() if key != ("chance/muon", 10)})


def test_a_row_is_compared_with_adamw_at_its_own_best_rate(script, kept):
    assert words(script, with_best(script, kept, muon=0.1, sgd=0.5)) == {
        "AdamW: 0.002": "-",
        "Muon: 0.02": "replicates",
        "SGD with momentum: 0.1": "opposite",
        "sandwich norm: 0.002": "absent",
        "QK-norm: 0.002": "absent",
        "DynamicTanh: 0.002": "absent",
    }


def test_no_row_is_judged_if_adamw_has_no_sink_at_its_best_rate(script, kept):
    found = words(script, with_best(script, kept, adamw=0.03, muon=0.01))
    assert {word for row, word in found.items() if not row.startswith("AdamW")} == {"not applicable"}


def test_a_run_with_the_best_settings_may_be_of_another_row(script, kept):
    done = with_best(script, kept)
    moved = {("bos/bos-100" if row == "chance/adamw" else row, seed): own for (row, seed), own in done.items()}
    assert words(script, moved) == words(script, done)


def test_a_diverged_run_is_counted_and_has_no_number(script):
    runs = [entry(0), entry(1), entry(2, outcome="diverged", attention=0.9)]
    assert script["cell"](runs, script["ATTENTION"]) == "0.3 (1 diverged)"
    assert script["cell"](runs[2:], script["ATTENTION"]) == "(1 diverged)"
    assert script["cell"]([], script["ATTENTION"]) == "-"
