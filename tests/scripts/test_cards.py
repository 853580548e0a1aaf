"""The script of cards with known answers: what it counts as an error, what it holds out, the models it plants, and its page."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest

SCRIPT = "cards.py"


@pytest.mark.parametrize(
    ("truth", "wrong"),
    [
        ({"kind": "tokens", "position": 0, "among": [0]}, []),
        ({"among": [0, 9]}, ["tokens"]),
        ({"tokens": [0]}, ["tokens"]),
        ({"weight": [2, 5, 8], "kind": "position"}, ["weight", "kind"]),
    ],
)
def test_a_field_that_differs_is_an_error_and_known_tokens_must_be_among_those_of_the_card(script, truth, wrong) -> None:
    found = {"kind": "tokens", "position": 0, "tokens": [0, 4], "weight": [2, 5, 7]}
    assert script["errors"](truth, found) == wrong


def test_tokens_that_are_not_known_to_sink_are_counted(script) -> None:
    found = {"tokens": [0, 4, 9]}
    assert [script["extra"](truth, found) for truth in ({"among": [0]}, {"among": [0, 4, 9, 11]}, {"kind": "nothing"})] == [
        2,
        0,
        0,
    ]


def test_at_least_24_answers_are_known_and_six_are_held_out(script) -> None:
    assert len(script["CASES"]) >= 24
    assert {*script["SHOWN"], *script["HELD_OUT"]} <= {*script["CASES"]}
    assert len(script["HELD_OUT"]) >= 6


def test_a_planted_position_is_where_every_head_looks_whatever_token_is_there(script) -> None:
    import sinkjax

    for place, token in ((3, None), (5, 200)):
        model, text = script["key"](place, token)
        probe = sinkjax.Probe(attention_received=True)
        received = np.asarray(sinkjax.forward(model, text, probe=probe, logits=False).record["attention_received"])
        assert (received[..., place].mean(axis=0) > 0.3).all()
        assert (len(np.unique(text[:, place])) == 1) == (token is not None)


@pytest.mark.parametrize(
    ("other", "wrong"),
    [
        ({}, []),
        ({"loss": {"mean": 0.7, "low": 0.6, "high": 0.8, "n": 8}, "line": "costs +0.70 nats [0.6, 0.8]"}, []),
        ({"loss": {"mean": 0.9, "low": 0.75, "high": 1.05, "n": 8}}, ["loss is 0.77 and 0.9"]),
        ({"line": "saves +0.77 nats [0.68, 0.87]"}, ["line is "]),
        ({"heads": [[0, 1]]}, ["heads is "]),
    ],
)
def test_a_card_of_another_processor_says_the_same_within_the_intervals(script, other, wrong) -> None:
    one = {
        "loss": {"mean": 0.77, "low": 0.68, "high": 0.87, "n": 8},
        "line": "costs +0.77 nats [0.68, 0.87]",
        "heads": [[0, 1], [2, 3]],
    }
    found = script["disagreements"](one, one | other)
    assert len(found) == len(wrong)
    assert all(entry.startswith(start) for entry, start in zip(found, wrong, strict=True))


def test_the_page_is_that_of_the_file(script) -> None:
    known = pd.read_csv(script["DATA"], keep_default_na=False)
    for row in known.to_dict("records"):
        assert ", ".join(script["errors"](json.loads(row["truth"]), json.loads(row["answer"]))) == row["errors"]
    old = script["PAGE"].read_text(encoding="utf-8")
    assert f"| {known['model'].iloc[0]} |" in old
    judged = known[known["truth"] != "{}"]
    extra = [script["extra"](json.loads(row["truth"]), json.loads(row["answer"])) for row in judged.to_dict("records")]
    assert re.search(rf"name, {sum(extra)} of \d+ are not among the known ones", " ".join(old.split()))
    assert all((f"; extra tokens: {more} |" in old) for more in extra if more)
    assert f"{(judged['errors'] == '').sum()} of {len(judged)} cards" in " ".join(old.split())
    assert all(
        f"`{name}`" in old.partition("|")[0] for name in known["model"][(known["truth"] == "{}") | (known["errors"] != "")]
    )
