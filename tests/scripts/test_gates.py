"""The page of gates: a sink is told by its value, and rows are compared by seed, less their null."""

from __future__ import annotations

import pytest

SCRIPT = "gates.py"
SEEDS = range(3, 11)


def entry(seed=3, broadcast=0.0, null=0.0, attention=0.3, value=0.1):
    """What is kept of a run of one head: its attention to BOS and the norm of BOS's value over the others'."""

    def shares(share):
        return {"no-op": 0.0, "broadcast": share, "neither": 0.0}

    kinds = {"sinks": shares(broadcast), "null": shares(null)}
    return {"seed": seed, "card": {"bos": {"kinds": kinds, "received": [[attention]], "value ratio": [[value]]}}}


def seeds(**options):
    return [entry(seed, **options) for seed in SEEDS]


@pytest.mark.parametrize(
    ("gated", "word"),
    [
        (seeds(), "holds"),
        (seeds(broadcast=0.3, null=0.25), "holds"),
        (seeds(broadcast=0.3), "does not hold"),
        ([entry(seed, broadcast=0.3 * (seed % 2)) for seed in SEEDS], "undecided"),
        (seeds()[:7], "open (7 of 8 seeds)"),
    ],
)
def test_gates_are_compared_by_seed_less_the_null(script, gated, word):
    assert script["prediction"]({"no gate": seeds(), "gates on elements": gated}) == word


def test_seeds_that_differ_alike_are_no_rise(script):
    rows = [entry(seed, broadcast=0.3 * (seed % 2)) for seed in SEEDS]
    assert script["prediction"]({"no gate": rows, "gates on elements": rows}) == "holds"
    assert script["prediction"]({"no gate": rows[1:] + rows[:1], "gates on elements": rows}) == "undecided"


@pytest.mark.parametrize(
    ("attention", "value", "told"),
    [(0.4, 0.1, [1, 0, 0]), (0.4, 0.3, [0, 1, 0]), (0.4, 0.6, [0, 0, 1]), (0.2, 0.1, [0, 0, 0])],
)
def test_a_sink_is_told_by_its_value(script, attention, value, told):
    assert [one.of(entry(attention=attention, value=value)) for one in script["MEASURES"][1:4]] == told
