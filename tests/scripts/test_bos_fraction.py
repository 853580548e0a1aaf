"""The page of BOS fractions: words of the plan's predictions wait for all seeds, and follow the runs then."""

from __future__ import annotations

import pytest

SCRIPT = "bos_fraction.py"


def entry(seed=3, sinks=0.0, plain=0.0, tokens=512, moved=0.05, wrong=0):
    """What is kept of a run. tokens: those above half, with BOS; moved: attention to key 1 with key 0 masked."""

    def view(rate):
        edits = {"none": {"received": [0.5, 0.02]}, "mask 0": {"received": [0.0, moved]}, "mask 5": {"received": [0.5, 0.03]}}
        counts = {"predicted and measured, predicted only, measured only, neither": [32 - wrong, wrong, 0, 32]}
        scan = {"above half": round(tokens / 512, 5), "first": 2.0}
        return {"by key": {"rate": [rate]}, "edits": edits, "scan": scan, "token by token": counts}

    end = {"loss": 3.0, "sink": [sinks], "received": [[0.1]]}
    return {"seed": seed, "end": end, "card": {"bos": view(sinks), "plain": view(plain)}}


def grown(**options):
    """A row with a sink that only BOS is fit for."""
    return [entry(seed, sinks=0.5, tokens=1, moved=0.04, **options) for seed in range(3, 11)]


def barren():
    return [entry(seed) for seed in range(3, 11)]


@pytest.fixture
def expected():
    """Rows as the plan predicts them, where half of the blocks have no sink."""
    small = {name: barren() for name in ("bos-0", "bos-10", "bos-50", "offsets")}
    return {**small, "bos-90": grown(), "bos-100": grown()}


def test_predictions_hold_where_the_runs_are_as_predicted(script, expected):
    assert script["predictions"](expected) == ["holds", "not applicable, since neither grows a sink", "holds", "holds", "holds"]


@pytest.mark.parametrize(
    ("row", "runs", "number", "word"),
    [
        ("bos-90", grown()[:7], 0, "open (7 of 8 seeds)"),
        ("bos-90", [entry(seed, sinks=0.5, tokens=60, moved=0.04) for seed in range(8)], 0, "does not hold"),
        ("bos-100", [entry(seed, sinks=0.5, tokens=1, moved=0.06) for seed in range(8)], 0, "does not hold"),
        ("bos-50", grown(), 1, "holds"),
        ("bos-50", grown(plain=0.2), 1, "does not hold"),
        ("bos-0", grown(), 2, "does not hold"),
        ("offsets", grown(), 3, "does not hold"),
        ("bos-100", grown(wrong=4), 4, "does not hold"),
        ("bos-100", grown(wrong=3), 4, "holds"),
        ("bos-0", [entry(seed, wrong=20) for seed in range(8)], 4, "holds"),  # it has no sink to predict
    ],
)
def test_the_word_of_a_prediction_follows_the_runs(script, expected, row, runs, number, word):
    assert script["predictions"]({**expected, row: runs})[number] == word


def test_bos_itself_is_none_of_the_other_tokens(script):
    assert script["others_above_half"](entry(tokens=1)) == 0
    assert script["others_above_half"](entry(tokens=512)) == 1


def test_the_gain_of_the_next_token_leaves_out_what_it_has_anyway_and_what_any_mask_gives_it(script):
    assert script["gain"](entry(moved=0.03)) == 0
    assert script["gain"](entry(moved=0.08)) == pytest.approx(0.1)
    assert script["transfer"]("bos")(entry(moved=0.03)) == pytest.approx(0.06)


def test_a_row_has_an_interval_with_all_of_its_seeds(script):
    measure = script["SINKING"]
    rates = [0.5, 0.6, 0.5, 0.6, 0.5, 0.6, 0.5, 0.6]
    assert script["shown"](rates[:7], measure) == "54%"
    assert script["shown"](rates, measure).startswith("55% [5")
