"""What a table of pretraining may say, and the sentence for what it may not."""

from __future__ import annotations

import pytest

from sinkjax.config_files import documents
from sinkjax.errors import SinkjaxError
from sinkjax.papers.pretrain._sizes import SIZES
from sinkjax.papers.pretrain._task import Pretraining, row
from sinkjax.studies.declaration import Study
from sinkjax.studies.scope import Scope
from sinkjax.studies.settings import config_type
from sinkjax.studies.trained import specs


def training(changes=(), times=(), **settings):
    word = row(changes=changes, times=times)
    return word.meaning.of(Scope(Pretraining(**settings), None), "a", **word.given).training


def study(**rows):
    return Study(name="mine/one", trainings=rows)


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
        ({"weight_decay": "much"}, (), "row a: weight_decay must be a number"),
        ({"learning_rates": [1, 2]}, (), "a row has one learning rate, not 2"),
        ((), {"bos": 2}, "times bos needs a number"),
        ((), {"nothing": 2}, "times nothing needs a number"),
        ({"unique": 2}, (), "unique must be at most 1"),
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
    with pytest.raises(SinkjaxError, match="unknown sizes 'huge'"):
        specs(study(a=row(sizes=("huge",))), Pretraining())
    with pytest.raises(SinkjaxError, match="unknown training 'b'"):
        specs(study(a=row()), Pretraining(only=("b",)))


def test_a_size_may_lack_a_row_and_a_choice_of_rows_is_no_other_study():
    value = study(a=row(sizes=("60m",)), b=row(), c=row(changes={"bos": "none"}))
    cls = config_type(value)
    assert [(spec.name, spec.wanted) for spec in specs(value, cls(only=("c",)))] == [("b", False), ("c", True)]
    assert documents.differences(cls(only=("b",)), cls()) == []
    assert documents.differences(cls(seeds=2), cls()) == ["seeds was 2, now 1"]
