"""From logs to tables: means over finished seeds, the paper beside them, what is not run or not finished, and words."""

from __future__ import annotations

import re

import numpy as np
import pytest

from sinkjax.config_files import documents
from sinkjax.papers.pretrain import _outcomes as outcomes
from sinkjax.papers.pretrain._outcomes import MEASURES
from sinkjax.papers.pretrain._table import table as read_table
from sinkjax.papers.pretrain._task import GOING, of_log, so_far
from sinkjax.study.measures import read_measure
from sinkjax.study.results import assemble
from sinkjax.train.config import ALL_STEPS, DIVERGED
from sinkjax.train.log import LOG
from tests.papers.pretrain.logs import curve, line, log

STUDY = """
study: mine/made-up
title: A title
trainings:
  a: {row: {label: row a, paper: {sink_1: 18.18, valid_loss: 3.7}}}
  b: {row: {label: row b, paper: {sink_1: diverges}}}
  c: {row: {label: row c, sizes: [60m]}}
  d: {row: {label: row d}}
  identity: {row: {label: row e}}
measures: [sink_1, valid_loss, first_share, value_ratio]
figures: [learning_curves, {beside_the_paper: {measures: [sink_1], xlabel: heads}}, {losses_beside: valid_loss}]
"""


def section(stores: dict, claims: str = ""):
    study = read_table(documents.parse(STUDY + claims, "the study"), "the study")
    return assemble(study.trace(study.settings(), None), stores)


def table(stores: dict, claims: str = "") -> dict:
    return {(row.condition, row.measure): row.value for row in section(stores, claims).rows}


def read(name: str, data):
    return read_measure(MEASURES[name], data)


@pytest.fixture
def stores(tmp_path):
    """Row a: two seeds that finished; row b: one that finished and one that diverged."""
    a = log(tmp_path / "a", [*curve(0, [5.0, 4.0, 3.0], 0.4), *curve(1, [5.0, 4.0, 3.2], 0.6)])
    broken = [line(1, 0, 5.0, 0.0), line(1, 30, None, 0.0, status=DIVERGED)]
    b = log(tmp_path / "b", [*curve(0, [5.0, 3.0, 2.8], 0.1), *broken])
    return {"a": of_log(a), "b": of_log(b)}


def test_a_log_becomes_arrays_that_end_where_a_run_ends(stores):
    assert stores["a"]["sink"].dims == ("run", "point", "key")
    assert stores["a"]["received"].sizes == {"run": 2, "point": 3, "layer": 2, "head": 2}
    assert list(stores["a"]["outcome"].values) == [ALL_STEPS, ALL_STEPS]
    assert list(stores["b"]["outcome"].values) == [ALL_STEPS, DIVERGED]
    assert np.isnan(stores["b"]["loss"].values[1, 1:]).all()
    assert stores["b"]["steps"].values.tolist() == [100, 30]


def test_a_training_that_goes_on_is_read_up_to_where_it_is(tmp_path):
    assert so_far(tmp_path / "nothing") is None
    begun = log(tmp_path / "begun", [])
    assert so_far(begun) is None
    (begun / LOG).write_text('{"training": "pre')  # of a training that is writing its first line
    assert so_far(begun) is None
    data = so_far(log(tmp_path / "half", curve(0, [5.0, 4.0, 3.0])[:2]))
    assert list(data["outcome"].values) == [GOING]
    assert np.isnan(read("valid_loss", data)).all()  # no run that goes on is in a mean


def test_means_are_over_the_seeds_that_finished(stores):
    found = table(stores)
    assert found["row a", "valid loss (nats)"].mean == pytest.approx(3.1)
    assert (found["row b", "Sink_1 (%)"].mean, found["row b", "Sink_1 (%)"].n) == (pytest.approx(10.0), 1)
    assert [found[f"row {row}", "seeds"].note for row in "abcd"] == ["2 of 2", "1 of 2", "not run", "not run"]
    assert found["row a", "Sink_1 (%), paper"].note == "18.18"
    assert found["row b", "Sink_1 (%), paper"].note == "diverges"
    assert found["row d", "Sink_1 (%)"].note == "-"
    assert found["row a, seed 1", "valid loss (nats)"].mean == pytest.approx(3.2)
    assert re.search("Row b: seed 1 .*step 30", " ".join(section(stores).findings))


def test_steps_to_a_loss_lie_on_the_line_between_two_evaluations(stores):
    steps = outcomes.steps_to(stores["b"], stores["a"])
    assert steps[0] == 50  # 3.0 at the second of three evaluations
    assert np.isnan(steps[1])
    slow = stores["a"].assign(loss=stores["a"]["loss"] + 1)
    assert outcomes.steps_to(slow, stores["a"]).tolist() == [np.inf, np.inf]
    fast = stores["a"].assign(loss=stores["a"]["loss"] - 0.5)
    assert outcomes.steps_to(fast, stores["a"])[0] == pytest.approx(75)  # 3.5 at 50, 2.5 at 100; its goal is 3.0


@pytest.fixture
def eight(tmp_path):
    """Row a: eight seeds that sink; row d: eight that do not; row b: seven seeds."""

    def runs(name, sink, loss, count=8):
        lines = [entry for run in range(count) for entry in curve(run, [5.0, loss + run / 100], sink + sink * run / 100)]
        return of_log(log(tmp_path / f"eight-{name}", lines))

    return {"a": runs("a", 0.9, 3.0), "d": runs("d", 0.0, 3.5), "b": runs("b", 0.0, 3.0, 7)}


def judged(stores, more, less, measure="first_share", whole="''"):
    contrast = f"{{versus: {{measure: {measure}, training: {more}, minus: {less}, whole: {whole}}}}}"
    (found,) = section(stores, f"claims: {{one: {{statement: So it is., contrast: {contrast}}}}}").verdicts
    return found


def test_a_claim_is_judged_by_the_difference_of_its_rows_seed_by_seed(eight):
    assert judged(eight, "a", "d").word == "confirmed"  # all of the sink is gone
    assert judged(eight, "d", "a").word == "not applicable"  # it has no sink, of which something could be a share
    assert judged(eight, "d", "a", "valid_loss").word == "undecided"  # the same in each pair: no spread
    rough = eight | {"d": eight["d"].assign(loss=eight["d"]["loss"] + 0.01 * (np.arange(8) % 3)[:, None])}
    found = judged(rough, "d", "a", "valid_loss")
    assert (found.word, found.judgement.S) == ("confirmed", None)  # a loss has no whole


def test_a_section_is_made_of_whatever_is_there(stores):
    empty = section({})
    assert empty.drawings == ()
    (said,) = empty.findings
    assert re.search("5 of 5 trainings .*row a; row b; row c; row d; row e", said)
    found = section({**stores, "identity": stores["a"]})  # a row with the name of a sweep's no-op edits
    assert [drawing.name for drawing in found.drawings] == ["learning", "rows", "losses"]
    assert all(drawing.svg.startswith(b"<?xml") for drawing in found.drawings)
    assert found.provenance["parameters"] == 1234
