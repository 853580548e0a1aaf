"""Trained models with known answers: what is planned, how a training's log decides the truth, and what is kept of each."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from sinkjax.tasks import registry

SCRIPT = "known_answers.py"
RULE = {"sink": 0.1, "none": 0.02}
SECOND = {"kind": "tokens", "position": 1, "among": [1]}


def test_every_planned_row_is_a_training_of_one_size_with_one_seed(script):
    every = script["plan"]()
    for name, row in every["rows"].items():
        config = script["Run"](f"known/{name}", every["seed"], row["changes"]).config("packaged")
        assert (config.steps, config.layers, config.width, config.seed) == (7000, 4, 64, every["seed"])
        assert registry.task(config).model("").vocab_size == 512
    assert sum(bool(row.get("held_out")) for row in every["rows"].values()) == 3


@pytest.mark.parametrize(
    ("stated", "sink", "bias", "truth"),
    [
        (SECOND, [0.0, 0.5, 0.0], 0.0, SECOND),
        (SECOND, [0.5, 0.4, 0.0], 0.0, {}),  # a sink elsewhere is none that the setting forces
        (SECOND, [0.0, 0.05, 0.0], 0.0, {}),
        (SECOND, [0.0, 0.01, 0.02], 0.0, {"kind": "nothing"}),
        ({"kind": "a key without a token"}, [0.0, 0.0], 0.8, {"kind": "a key without a token"}),
        ({"kind": "a key without a token"}, [0.7, 0.0], 0.2, {}),
        ({"kind": "nothing"}, [0.0, 0.0], 0.01, {"kind": "nothing"}),
        ({"kind": "nothing"}, [0.3, 0.0], 0.0, {}),
    ],
)
def test_the_log_decides_whether_the_sink_that_the_setting_forces_is_there(script, stated, sink, bias, truth):
    assert script["decided"](stated, {"sink": sink, "sink_bias": bias}, RULE) == truth


def test_rates_are_of_shares_where_rows_need_not_sum_to_1(script):
    end = {"sink": [0.0], "sink_bias": 0.1, "sink_share": [0.2], "sink_bias_share": 0.3}
    assert script["rates"](end, rows_sum_to_1=True) == {"sink": [0.0], "sink_bias": 0.1}
    assert script["rates"](end, rows_sum_to_1=False) == {"sink": [0.2], "sink_bias": 0.3}


def test_prompts_have_the_fixed_token_where_the_training_had_it(script):
    import sinkjax

    model = sinkjax.load("mini-softmax")
    ids = script["prompts"](model, {"bos": "none", "fixed_token": 1, "fixed_positions": [2]})
    assert np.unique(np.nonzero(ids == 1)[1]).tolist() == [2]
    assert (ids[:, 2] == 1).all()
    assert script["prompts"](model, {"attention_bias": "k"}) == "packaged"


def test_what_is_kept_follows_from_the_log_by_the_rule(script):
    """The truth in the table is that of the training's own log; its errors are those of the card."""
    table = pd.read_csv(script["cards"].DATA, keep_default_na=False).set_index("model")
    every = script["plan"]()
    for path in script["KEPT"].glob("*.json"):
        kept, row = json.loads(path.read_text(encoding="utf-8")), every["rows"][path.stem]
        assert kept["truth"] == script["decided"](row["truth"], kept["end"], every["rule"])
        assert json.loads(table.loc[f"trained {path.stem}", "truth"]) == kept["truth"]
        assert json.loads(table.loc[f"trained {path.stem}", "answer"]) == kept["answer"]
        assert kept["fields"] == row["changes"]
        assert (f"untrained {path.stem}" in table.index) == bool(row.get("twin"))
