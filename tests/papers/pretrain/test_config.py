"""What a table of pretraining may say, and the sentence for what it may not."""

from __future__ import annotations

import pytest

from sinkjax.errors import SinkjaxError
from sinkjax.papers.pretrain._table import table
from sinkjax.papers.pretrain._task import SIZES, Pretraining, spec
from sinkjax.study.trained import specs


def training(changes=None, times=None, **settings):
    return spec(Pretraining(**settings), "a", changes or {}, times or {}).training


def study(**values):
    return table({"study": "mine/one", **values}, "mine.yaml")


def trainings(program, settings):
    return specs(program.trace(settings, None), settings)


def rows(**given):
    return study(trainings={name: {"row": row} for name, row in given.items()})


def test_a_row_changes_what_the_size_and_the_study_say():
    assert training().weight_decay == SIZES["mini"].fields["weight_decay"]
    found = training({"weight_decay": 2, "bos": "none"}, steps=7, seeds=3, text="mine.txt")
    assert (found.weight_decay, found.bos, found.steps, found.seeds, found.text) == (2, "none", 7, 3, "mine.txt")


def test_times_multiply_the_numbers_of_the_size_and_a_window_is_part_of_the_context():
    found = training(times={"learning_rates": 2, "steps": 0.5, "window": 0.125}, steps=101)
    assert found.learning_rates == (2 * SIZES["mini"].fields["learning_rates"][0],)
    assert (found.steps, found.window) == (round(101 / 2), SIZES["mini"].fields["context"] // 8)


CLAIM = {"contrast": {"versus": {"measure": "sink_1", "training": "a"}}}


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"grids": {}}, "grids"),
        ({"settings": {"sise": "mini"}}, "settings.*sise"),
        ({"settings": {"seeds": "two"}}, "settings: seeds"),
        ({"trainings": None}, "trainings"),
        ({"trainings": {"a": {"rows": {}}}}, "a:.*rows"),
        ({"trainings": {"a": {"row": {"paper": {"sinks": 1}}}}}, "sinks"),
        ({"measures": ["sinks"]}, "sinks"),
        ({"figures": ["curves"]}, "figures.*curves"),
        ({"figures": [{"losses_beside": {"of": "valid_loss"}}]}, "losses_beside.*of"),
        ({"claims": {"one": {"contrast": {"versus": {"measure": "sinks", "training": "a"}}}}}, "claims.one.*sinks"),
        ({"claims": {"one": {"contrast": {"versus": {"measure": "sink_1", "training": "b"}}}}}, "claims.one.*'b'"),
        ({"claims": {"one": {"contrast": {"effect": {}}}}}, "claims.one.*effect"),
        ({"claims": {"one": {}}}, "claims.one .*contrast, described"),
        ({"claims": {"one": {**CLAIM, "described": {"steps_to_loss": "a"}}}}, "claims.one .*contrast, described"),
        ({"claims": {"one": {**CLAIM, "sing": 1}}}, "claims.one.*sing"),
        ({"claims": {"one": {**CLAIM, "given": {"attains": {"measure": "sink_1", "training": "a", "most": "x"}}}}}, "most"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_by_the_name_in_it(changed, named):
    with pytest.raises(SinkjaxError, match=named):
        trainings(study(**{"trainings": {"a": {"row": {}}}, **changed}), Pretraining())
