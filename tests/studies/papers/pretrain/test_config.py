"""What a study's file may say, and the sentence for what it may not."""

from __future__ import annotations

import pytest

from sinkjax.config_files import documents
from sinkjax.errors import SinkjaxError
from sinkjax.studies.papers._pretrain import trainings
from sinkjax.studies.papers._pretrain.config import Ablation
from sinkjax.studies.papers._pretrain.sizes import SIZES

STUDY = {"name": "made-up", "title": "A title", "claim": "A claim."}


def study(*rows, **fields) -> Ablation:
    return documents.build(Ablation, {**STUDY, "rows": rows, **fields}, "mine")


def training(row, **fields):
    config = study({"name": "a", **row}, **fields)
    return trainings.training(config, config.row_specs[0])


def test_a_row_changes_what_the_size_and_the_study_say():
    assert training({}).weight_decay == SIZES["mini"].fields["weight_decay"]
    found = training(
        {"changes": {"weight_decay": 2}}, changes={"weight_decay": 1, "bos": "none"}, steps=7, seeds=3, text="mine.txt"
    )
    assert (found.weight_decay, found.bos, found.steps, found.seeds, found.text) == (2, "none", 7, 3, "mine.txt")


def test_times_multiply_the_numbers_of_the_size_and_a_window_is_part_of_the_context():
    found = training({"times": {"learning_rates": 2, "steps": 0.5, "window": 0.125}}, steps=101)
    assert found.learning_rates == (2 * SIZES["mini"].fields["learning_rates"][0],)
    assert (found.steps, found.window) == (round(101 / 2), SIZES["mini"].fields["context"] // 8)


def test_a_study_in_other_words_is_the_same_study():
    one = study({"name": "a"})
    said = {"title": "Another", "claim": "Another.", "notes": ["A note."], "measures": ["perplexity"]}
    other = study({"name": "a"}, **said, claims=[{"statement": "It sinks.", "more": "a", "less": 1}])
    assert documents.differences(one, other) == []
    assert len(documents.differences(one, study({"name": "a", "changes": {"layers": 1}}))) == 1


def test_another_task_has_its_own_fields():
    assert training({"changes": {"triggers": 5}}, size="backcopy").triggers == 5
    with pytest.raises(SinkjaxError, match="made-up, row a: unknown key 'triggers'"):
        training({"changes": {"triggers": 5}})


@pytest.mark.parametrize(
    ("rows", "fields", "message"),
    [
        ([], {}, "rows must be at least one"),
        ([{"name": "a"}, {"name": "a"}], {}, "each with a name of its own"),
        ([{"name": "A b"}], {}, "small letters"),
        ([{"name": "a", "change": {}}], {}, r"rows\[0\]: unknown key 'change' \(did you mean 'changes'"),
        ([{"name": "a", "paper": {"sinks": 1}}], {}, "unknown measure 'sinks'"),
        ([{"name": "a", "paper": {"sink": [1]}}], {}, "must be a number or a few words, not a list"),
        ([{"name": "a", "sizes": ["huge"]}], {}, "unknown sizes 'huge'"),
        ([{"name": "a"}], {"size": "huge"}, "size must be 'mini' or"),
        ([{"name": "a"}], {"only": ["b"]}, "unknown row 'b'"),
        ([{"name": "a", "sizes": ["60m"]}, {"name": "b"}], {"only": ["a"]}, "unknown row 'a'"),
        ([{"name": "a"}], {"claims": [{"statement": "s", "more": "a", "less": "x"}]}, "unknown row 'x'"),
        ([{"name": "a"}], {"claims": [{"statement": "s", "more": 1, "less": 2}]}, "compares two rows"),
        ([{"name": "a"}], {"claims": [{"statement": "s", "more": "a", "less": 2, "sinks": "x"}]}, "unknown row 'x'"),
        ([{"name": "a"}], {"claims": [{"statement": "s", "more": 2, "less": "a", "half": "x"}]}, "unknown row 'x'"),
        ([{"name": "a"}], {"claims": [{"statement": "s", "more": "a", "less": 2, "half": "a"}]}, "less must be a row"),
        ([{"name": "a"}], {"claims": [{"statement": "s", "more": "a", "less": 2, "within": 0}]}, "within must be above 0"),
        ([{"name": "a"}], {"measures": ["x"]}, "unknown measures 'x'"),
        ([{"name": "a"}], {"steps": 0}, "steps must be at least 1"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(rows, fields, message):
    with pytest.raises(SinkjaxError, match=message):
        study(*rows, **fields)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"changes": {"weight_decay": "much"}}, "made-up, row a: weight_decay must be a number"),
        ({"changes": {"learning_rates": [1, 2]}}, "a row has one learning rate, not 2"),
        ({"times": {"bos": 2}}, "times bos needs a number"),
        ({"times": {"nothing": 2}}, "times nothing needs a number"),
        ({"changes": {"unique": 2}}, "unique must be at most 1"),
    ],
)
def test_a_row_that_is_no_training_is_refused_by_its_name(row, message):
    with pytest.raises(SinkjaxError, match=message):
        training(row)


def test_a_choice_of_rows_is_no_other_study():
    rows = ({"name": "a"}, {"name": "b"})
    assert documents.differences(study(*rows, only=("a",)), study(*rows)) == []
    assert documents.differences(study(*rows, seeds=2), study(*rows)) == ["seeds was 2, now 1"]
    assert [entry.wanted for entry in trainings.trainings(study(*rows, only=("b",)))] == [False, True]
