"""From logs to tables: means over finished seeds, the paper beside them, what is not run or not finished, and verdicts."""

from __future__ import annotations

import numpy as np
import pytest

from sinkjax.studies.assemble import assemble
from sinkjax.studies.papers import pretrain
from sinkjax.studies.papers._pretrain import rows as summary
from sinkjax.studies.papers._pretrain.config import MEASURES, Ablation
from sinkjax.studies.papers._pretrain.measure import GOING, of_log, so_far
from sinkjax.studies.results import Results
from sinkjax.train.config import ALL_STEPS, DIVERGED
from sinkjax.train.log import LOG
from tests.studies.papers.pretrain.logs import curve, line, log

ROWS = (
    {"name": "a", "label": "row a", "paper": {"sink": 18.18, "loss": 3.7}},
    {"name": "b", "label": "row b", "paper": {"sink": "diverges"}},
    {"name": "c", "label": "row c", "sizes": ["60m"]},
    {"name": "d", "label": "row d"},
)


def study(**fields) -> Ablation:
    return Ablation(**{"name": "made-up", "title": "A title", "claim": "A claim.", "rows": ROWS, **fields})


def found_in(stores: dict, config: Ablation | None = None) -> Results:
    return Results(pretrain.STUDY, config or study(), stores)


def verdicts(config: Ablation, stores: dict) -> list[str]:
    return [claim.verdict for claim in assemble(pretrain.STUDY, config, stores).claims]


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
    assert np.isnan(summary.OF["loss"](data)).all()  # no run that goes on is in a mean


def test_a_line_that_a_kill_cut_short_is_left_out(tmp_path):
    folder = log(tmp_path / "killed", curve(0, [5.0, 4.0, 3.0]))
    text = (folder / LOG).read_text()
    (folder / LOG).write_text(text[:-10])
    assert so_far(folder).sizes["point"] == 2
    folder = log(tmp_path / "at once", [line(0, 0, 5.0, 0.0), line(1, 0, 5.0, 0.0)])
    (folder / LOG).write_text((folder / LOG).read_text()[:-10])  # before the second run had a line
    assert so_far(folder)["outcome"].values.tolist() == [GOING, GOING]


def test_means_are_over_the_seeds_that_finished(stores):
    results = found_in(stores)
    a, b, *_ = results.config.row_specs
    assert summary.mean(results, a, "loss").mean == pytest.approx(3.1)
    found = summary.mean(results, b, "sink")
    assert (found.mean, found.n) == (pytest.approx(10.0), 1)
    assert summary.finished(results, b) == (1, 2)
    assert list(summary.unfinished(results)) == ["row b: seed 1 diverged at step 30. Its means leave them out."]


def test_a_difference_is_between_the_same_seeds(stores):
    found = summary.difference(found_in(stores), "b", "a", "loss")
    assert (found.mean, found.n) == (pytest.approx(2.8 - 3.0), 1)


def test_sinks_of_rows_that_need_not_sum_to_1_are_by_shares(tmp_path):
    lines = curve(0, [5.0, 4.0], 0.8)
    weights, shares = (of_log(log(tmp_path / name, lines, normaliser=name)) for name in ("sigmoid-sum", "sigmoid"))
    assert summary.OF["sink"](weights).tolist() == [pytest.approx(80)]
    assert summary.OF["sink"](shares).tolist() == [pytest.approx(40)]
    assert summary.OF["strongest"](shares).tolist() == [pytest.approx(0.4)]
    assert summary.OF["column_sum"](shares).tolist() == [pytest.approx(1.1 / 4)]
    assert [summary.OF["sink_bias"](data).tolist() for data in (weights, shares)] == [[pytest.approx(2)], [pytest.approx(1)]]


def test_every_measure_has_a_number_for_a_finished_run(stores):
    for measure in MEASURES:
        assert np.isfinite(summary.values(found_in(stores), "a", measure)).all(), measure


def test_a_log_of_before_a_measure_has_no_number_of_it(stores):
    old = {name: data.drop_vars("value_ratio") for name, data in stores.items()}
    assert np.isnan(summary.values(found_in(old), "a", "value_ratio")).all()
    config = study(measures=("value_ratio",), claims=({"statement": "So.", "more": 1.0, "less": "a", "measure": "value_ratio"},))
    rows = {(row.condition, row.measure): row.value.mean for row in summary.rows(found_in(old, config))}
    assert rows["row a", MEASURES["value_ratio"]] is None
    assert rows["row a", MEASURES["loss"]] == pytest.approx(3.1)
    assert verdicts(config, old)[0] == "not applicable"
    assert verdicts(config, stores)[0] == "inconclusive"  # two seeds


def test_steps_to_a_loss_lie_on_the_line_between_two_evaluations(stores):
    steps = summary.steps_to(stores["b"], stores["a"])
    assert steps[0] == 50  # 3.0 at the second of three evaluations
    assert np.isnan(steps[1])
    slow = stores["a"].assign(loss=stores["a"]["loss"] + 1)
    assert summary.steps_to(slow, stores["a"]).tolist() == [np.inf, np.inf]
    fast = stores["a"].assign(loss=stores["a"]["loss"] - 0.5)
    assert summary.steps_to(fast, stores["a"])[0] == pytest.approx(75)  # 3.5 at 50, 2.5 at 100; its goal is 3.0


def test_a_loss_that_some_seeds_never_reach_is_no_mean_over_the_others(stores):
    config = study(measures=("steps_to",))

    def shown(*less):
        losses = stores["a"]["loss"] + np.array(less)[:, None]
        rows = summary.rows(found_in({**stores, "d": stores["a"].assign(loss=losses)}, config))
        return next(row.value for row in rows if (row.condition, row.measure) == ("row d", MEASURES["steps_to"]))

    assert shown(-0.5, -0.5).n == 2
    assert shown(-0.5, 1.0).note == "75.0 in 1 of 2, else never"
    assert shown(1.0, 1.0).note == "never"


def test_the_table_has_a_line_for_each_row_run_or_not(stores):
    rows = {(row.condition, row.measure): row.value for row in summary.rows(found_in(stores))}
    seeds = {label: rows[label, summary.SEEDS].note for label in ("row a", "row b", "row c", "row d")}
    assert seeds == {"row a": "2 of 2", "row b": "1 of 2", "row c": "not at size mini", "row d": "not run"}
    assert rows["row a", "Sink_1 (%), paper"].note == "18.18"
    assert rows["row b", "Sink_1 (%), paper"].note == "diverges"
    assert rows["row d", "Sink_1 (%)"].mean is None
    assert rows["row a, seed 1", MEASURES["loss"]].mean == pytest.approx(3.2)


@pytest.fixture
def eight(stores, tmp_path):
    """Row a: eight seeds that sink; row d: eight that do not; row b: seven seeds."""

    def runs(name, sink, loss, count=8):
        lines = [entry for run in range(count) for entry in curve(run, [5.0, loss + run / 100], sink + run / 100)]
        return of_log(log(tmp_path / f"eight-{name}", lines))

    return {"a": runs("a", 0.4, 3.0), "d": runs("d", 0.0, 3.5), "b": runs("b", 0.0, 3.0, 7)}


def judged(stores, **said):
    config = study(source="Gu et al. 2025", claims=({"statement": "So it is.", **said},))
    (found,) = assemble(pretrain.STUDY, config, stores).claims
    return found


def test_a_claim_is_judged_by_the_difference_of_its_rows_seed_by_seed(eight):
    def verdict(**said):
        return judged(eight, **said).verdict

    assert verdict(more="a", less="d") == "supported"  # by the signs: the same in each pair
    assert verdict(more="d", less="a") == "contradicted"
    assert verdict(more="d", less="a", measure="loss") == "supported"
    assert verdict(more="a", less=30) == "supported"
    assert verdict(more=5, less="d") == "inconclusive"
    assert verdict(more=5, less="a") == "contradicted"
    assert verdict(more=43.5, less="a") == "inconclusive"


def test_a_claim_needs_eight_seeds_of_rows_that_were_run(eight):
    few = judged(eight, more="a", less="b")
    assert (few.verdict, few.reason) == ("inconclusive", "7 independent samples cannot decide: at least 8 are needed")
    absent = judged(eight, more="a", less="c")
    assert (absent.verdict, absent.reason) == ("not applicable", "there are no trained runs of row c")


def test_a_claim_can_say_that_two_rows_differ_by_little(eight):
    assert judged(eight, more="a", less="d", within=50).verdict == "supported"
    assert judged(eight, more="a", less="d", within=5).verdict == "contradicted"
    assert judged(eight, more=43, less="a", within=2).verdict == "inconclusive"


def test_a_claim_on_what_prevents_a_sink_applies_only_where_there_is_one(eight):
    assert judged(eight, more=10, less="d", sinks="a").verdict == "supported"
    assert judged(eight, more=10, less="a", sinks="a").verdict == "contradicted"
    found = judged(eight | {"a": eight["d"]}, more=10, less="d", sinks="b")
    assert found.verdict == "inconclusive"
    assert "7 independent samples cannot decide" in found.reason


def test_what_prevents_a_sink_leaves_less_than_half_of_it_seed_by_seed(eight):
    assert judged(eight, more=10, less="d", sinks="a", half="a").verdict == "supported"
    assert judged(eight, more=60, less="a", sinks="a").verdict == "supported"
    found = judged(eight, more=60, less="a", sinks="a", half="a")
    assert found.verdict == "contradicted"
    assert 'Sink_1 (%), 0.5 times "row a" less "row a" lies above 0' in found.rule
    assert judged(eight, more=1, less="d", sinks="a", half="a").verdict == "contradicted"


def test_a_claim_names_its_source(eight):
    assert judged(eight, more="a", less="d", source="Table 2").source == "Gu et al. 2025, Table 2"
    assert judged(eight, more="a", less="d").source == "Gu et al. 2025"
    assert judged(eight, more="a", less="d").unit == "seeds"


def test_a_section_is_made_of_whatever_is_there(stores):
    empty = assemble(pretrain.STUDY, study(), {})
    assert empty.drawings == ()
    assert empty.findings == ("0 of 3 rows are finished, at size mini.", "Not run: row a; row b; row d.")
    section = assemble(pretrain.STUDY, study(), stores)
    assert section.findings[0] == "1 of 3 rows are finished, at size mini."
    assert [drawing.name for drawing in section.drawings] == ["learning", "sinks", "losses"]
    assert all(drawing.svg.startswith(b"<?xml") for drawing in section.drawings)
    assert section.provenance["parameters"] == "1,234"
