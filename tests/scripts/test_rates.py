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
    table = script["judged_table"](script["at_best"](done), script["rates"](done))
    return {line.split("|")[1].strip(): line.split("|")[-2].strip() for line in table.splitlines()[2:]}


def test_no_word_before_every_row_has_all_seeds(script, kept):
    done = with_best(script, kept)
    assert words(script, done)
    assert not words(script, kept)
    assert not words(script, {key: value for key, value in done.items() if key != ("chance/muon", 10)})


def test_a_row_is_compared_with_adamw_at_its_own_best_rate(script, kept):
    assert words(script, with_best(script, kept, muon=0.1, sgd=0.5)) == {
        "AdamW: 0.002": "-",
        "Muon: 0.02": "confirmed",  # the statement is ours
        "SGD with momentum: 0.1": "opposite",
        "sandwich norm: 0.002": "absent",
        "QK-norm: 0.002": "absent",
        "DynamicTanh: 0.002": "absent",
    }


def test_a_comparison_that_a_rate_of_adamw_with_as_low_a_loss_turns_round_is_described(script, kept):
    rates = script["queue_runs"].plan()["chance"]["adamw"]["rates"]
    kept |= {
        (f"chance/adamw@{rate:g}", seed): entry(
            seed, attention=0.3 + 0.6 * number, loss=2.0 + number / 100 + seed / 50, fields=run["fields"]
        )
        for number, rate in enumerate(rates[:2])
        for (row, seed), run in [*kept.items()]
        if row == f"chance/adamw@{rate:g}"
    }
    found = words(script, with_best(script, kept, muon=0.5, sgd=0.1))
    assert found["Muon: 0.02"] == "described"  # AdamW's next rate has a larger sink than Muon, at nearly the same loss
    assert found["SGD with momentum: 0.1"] == "confirmed"


def test_no_row_is_judged_if_adamw_has_no_sink_at_its_best_rate(script, kept):
    found = words(script, with_best(script, kept, adamw=0.03, muon=0.01))
    assert {word for row, word in found.items() if not row.startswith("AdamW")} == {"not applicable"}


def test_a_run_with_the_best_settings_may_be_of_another_row(script, kept):
    done = with_best(script, kept)
    moved = {("bos/bos-100" if row == "chance/adamw" else row, seed): own for (row, seed), own in done.items()}
    assert words(script, moved) == words(script, done)


def test_a_diverged_run_is_counted_and_has_no_number(script):
    runs = [entry(0), entry(1), entry(2, outcome="diverged", attention=0.9)]
    assert script["cell"](runs, script["ATTENTION"]) == "0.300 (1 diverged)"
    assert script["cell"](runs[2:], script["ATTENTION"]) == "(1 diverged)"
    assert script["cell"]([], script["ATTENTION"]) == "-"


def test_predictions_are_open_until_all_rows_have_their_seeds_and_follow_the_runs_then(script, kept):
    assert script["predicted"](script["at_best"](kept)) == {"order": "open", "smaller": "open"}
    falling = dict(zip(script["ORDER"], (0.3, 0.28, 0.26, 0.24, 0.22, 0.2), strict=True))
    found = script["at_best"](with_best(script, kept, **{**falling, "qk-norm": 0.26}))
    assert script["predicted"](found) == {"order": "holds", "smaller": "holds"}
    turned = script["at_best"](with_best(script, kept, **{**falling, "tanh": 0.29}))
    assert script["predicted"](turned) == {"order": "does not hold", "smaller": "holds"}
    wide = script["at_best"](with_best(script, kept, **{**falling, "adamw": 0.9}))
    assert script["predicted"](wide) == {"order": "holds", "smaller": "does not hold"}


def test_the_untuned_attention_is_known_for_every_row(script):
    assert script["earlier"]().keys() == script["ROWS"].keys()


def test_the_figure_has_a_dot_for_each_rate_and_a_filled_one_for_the_best(script, kept):
    near, far = script["draw"](script["rates"](kept)).axes
    assert len(near.lines) == 2 * len(script["ROWS"])  # the losses of these runs are near
    assert not far.lines
    assert [len(line.get_xdata()) for line in near.lines[:2]] == [3, 1]
    assert near.lines[1].get_xdata() == [2.0]
