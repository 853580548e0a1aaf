"""What a table of pretraining may say, and the sentence for what it may not."""

from __future__ import annotations

import pytest

from sinkjax.config_files import documents
from sinkjax.errors import SinkjaxError
from sinkjax.papers.pretrain._sizes import SIZES
from sinkjax.papers.pretrain._table import table
from sinkjax.papers.pretrain._task import Pretraining, spec
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


def test_a_width_of_heads_is_multiplied_where_it_is_stated_and_follows_from_the_model_s_elsewhere():
    heads = training({"heads": 8}, {"head_dim": 0.25}, size="340k")
    assert (heads.head_dim, SIZES["340k"].fields["head_dim"]) == (16, 64)
    assert training({"heads": 8}, {"head_dim": 0.25}).head_dim is None


def test_another_task_has_its_own_fields():
    assert training({"triggers": 5}, size="backcopy").triggers == 5
    with pytest.raises(SinkjaxError, match="row a: unknown key 'triggers'"):
        training({"triggers": 5})


@pytest.mark.parametrize(
    ("changes", "times", "message"),
    [
        ({"weight_decay": "much"}, {}, "row a: weight_decay .*number"),
        ({"learning_rates": [1, 2]}, {}, "one learning rate, not 2"),
        ({}, {"bos": 2}, "times bos needs a number"),
        ({}, {"nothing": 2}, "times nothing needs a number"),
        ({"unique": 2}, {}, "unique must be at most 1"),
    ],
)
def test_a_row_that_is_no_training_is_refused_by_its_name(changes, times, message):
    with pytest.raises(SinkjaxError, match=message):
        training(changes, times)


def test_what_does_not_fit_is_refused_by_name():
    with pytest.raises(SinkjaxError, match="size must be 'mini' or"):
        Pretraining(size="huge")
    with pytest.raises(SinkjaxError, match="steps must be at least 1"):
        Pretraining(steps=0)
    with pytest.raises(SinkjaxError, match=r"sizes.*huge"):
        rows(a={"sizes": ["huge"]})
    with pytest.raises(SinkjaxError, match="unknown training 'b'"):
        trainings(rows(a={}), Pretraining(only=("b",)))


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


def test_a_document_without_the_name_of_its_study_is_refused():
    with pytest.raises(SinkjaxError, match="lacks the key 'study'"):
        table({"trainings": {}}, "mine.yaml")


def test_a_size_may_lack_a_row_and_a_choice_of_rows_is_no_other_study():
    value = rows(a={"sizes": ["60m"]}, b={}, c={"changes": {"bos": "none"}})
    cls = value.settings
    assert [(found.name, found.wanted) for found in trainings(value, cls(only=("c",)))] == [("b", False), ("c", True)]
    assert documents.differences(cls(only=("b",)), cls()) == []
    assert documents.differences(cls(seeds=2), cls()) == ["seeds was 2, now 1"]
