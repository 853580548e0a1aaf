"""The queue of pretraining runs: every training once, ranked rows first, and logs that are kept as they are."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from sinkjax.errors import SinkjaxError
from sinkjax.papers.pretrain._task import of_lines
from sinkjax.tasks import registry
from sinkjax.train.log import LOG, read
from tests.papers.pretrain.logs import curve, log

SCRIPT = "pretrain_runs.py"


@pytest.fixture
def kept(script, monkeypatch, tmp_path):
    """The module of kept logs, with none."""
    monkeypatch.setattr(script["kept_logs"], "LOGS", tmp_path / "kept")
    return script["kept_logs"]


def test_every_training_is_in_the_queue_once_and_ranked_rows_come_first(script):
    queue = list(script["queue"]())
    seeds = Counter(row for row, _ in queue)
    assert [row for row, _ in queue[:16]] == [script["BASELINE"]] * 16
    assert list(seeds)[1:31] == [*script["FIRST"], *script["NEXT"]]
    assert [seeds[row] for row in (script["FIRST"][0], script["NEXT"][0])] == [8, 4]
    assert set(list(seeds.values())[31:]) == {1}
    assert len({script["identity"](row) for row in seeds}) == len(seeds)
    equal = {script["identity"](row) for row in script["rows"]()}
    assert equal == {script["identity"](row) for row in seeds}


def test_every_row_of_the_queue_has_a_model(script):
    for row in script["rows"]():
        assert registry.task(script["config_of"](row, 3)).model("").vocab_size == 512


def test_a_row_of_the_queue_is_that_of_its_study_with_the_steps_of_its_size(script):
    found = script["config_of"]("gu-learning-rate/x2", 5)
    base = script["config_of"](script["BASELINE"], 5)
    assert (found.seed, found.seeds, found.steps) == (5, 1, base.steps)
    assert found.learning_rates == (2 * base.learning_rates[0],)
    with pytest.raises(SinkjaxError, match="unknown"):
        script["config_of"]("gu-nothing/x2", 5)


def test_the_rows_of_learning_are_run_seed_by_seed_and_those_of_the_queue_by_it(script):
    runs, queue = list(script["learning"]()), set(script["queue"]())
    rows = [row for row, seed in runs if seed == 3]
    later = {"optimisers/sandwich": 7, "optimisers/qk-norm": 4}  # the seed after those of the queue
    for seed in range(3, 11):
        own = [row for row, each in runs if each == seed and row not in later]
        assert own == [row for row in rows if seed == 3 or not row.startswith("smollm2/")]
        assert {row for row, each in runs if each == seed and row in later} == {row for row in later if seed >= later[row]}
    assert not {(script["kept_as"](row), seed) for row, seed in runs} & {(f"{script['SIZE']}/{row}", seed) for row, seed in queue}
    assert [seed for _, seed in runs] == sorted(seed for _, seed in runs)
    assert script["config_of"]("chats/sigmoid", 3, "novels.txt").text == "chats"
    assert script["config_of"]("released/plain", 3, "novels.txt").text == "novels.txt"
    assert script["kept_as"]("hidden/base") == script["kept_as"]("optimisers/adamw") == f"{script['SIZE']}/{script['BASELINE']}"
    assert script["kept_as"]("optimisers/sandwich") == f"{script['SIZE']}/gu-norm/sandwich"
    assert {*script["learning_rows"]()} - {*rows} == {f"optimisers/{row}" for row in ("adamw", "sandwich", "qk-norm")} | {
        "hidden/base"
    }
    assert {script["kept_as"](row) for row in rows} == {f"learning/{row}" for row in rows}


def test_a_row_that_a_gpu_trained_is_known_by_its_kept_log(script):
    assert script["on_gpu"]("optimisers/muon", script["AGAIN"])
    assert not script["on_gpu"]("optimisers/tanh", script["AGAIN"])
    assert not script["on_gpu"]("optimisers/muon", 99)


def test_a_log_is_kept_as_it_is(script, kept, tmp_path):
    log(tmp_path / "run", curve(0, [5.0, 0.07568311], 0.2, 100), 100)
    script["keep"](tmp_path / "run", "search/f1/seed-0", 12.34)
    before = (kept.LOGS / "search.parquet").read_bytes()
    first, lines = kept.read("search/f1/seed-0")
    assert json.dumps(lines) == json.dumps(read(tmp_path / "run")[1])
    assert first["processor_seconds"] == 12.3
    script["keep"](tmp_path / "run", "search/f1/seed-0", 12.34)
    assert (kept.LOGS / "search.parquet").read_bytes() == before


def test_a_series_keeps_what_one_log_lacks_and_numbers_that_no_float32_holds(kept):
    plain, more = (
        {"step": 0, "loss": 0.1},
        {"loss": None, "step": 1, "kurtosis": [[0.1, 3.5], [None, 1e300]], "status": "running"},
    )
    for name, line in (("a/b", plain), ("a/c", more), ("d/e", {"loss": 1 / 3})):
        kept.keep(f"search/{name}", {"config": {"seed": 3}}, [line, line])
    assert kept.names("search/a") == ["search/a/b", "search/a/c"]
    assert [json.dumps(kept.read(f"search/{name}")[1]) for name in ("a/b", "a/c", "d/e")] == [
        json.dumps([line, line]) for line in (plain, more, {"loss": 1 / 3})
    ]
    with pytest.raises(KeyError, match="a/z"):
        kept.read("search/a/z")


def test_seeds_that_were_trained_together_are_kept_as_if_alone(script, kept, tmp_path):
    log(tmp_path / "run", [*curve(0, [5.0, 4.0]), *curve(1, [6.0, 3.0])], 100)
    script["keep"](tmp_path / "run", "search/f1/seed-1", 1.0, 1)
    first, lines = kept.read("search/f1/seed-1")
    assert (first["config"]["seed"], first["config"]["seeds"], first["runs"][0]["seed"]) == (1, 1, 1)
    assert [(line["run"], line["seed"], line["loss"]) for line in lines] == [(0, 1, 6.0), (0, 1, 3.0)]


def test_together_the_missing_seeds_of_a_row_are_one_training(script, kept):
    runs = [("hidden/until-2000", seed) for seed in range(3, 7)]
    assert list(script["batches"](runs, False)) == [(row, range(seed, seed + 1)) for row, seed in runs]
    kept.keep(script["home_of"](script["kept_as"](runs[0][0]), 4), {}, [{"step": 0}])
    assert list(script["batches"](runs, True)) == [(runs[0][0], range(3, 4)), (runs[0][0], range(5, 7))]


def test_the_kept_seeds_of_a_row_are_read_as_one_training(script, kept, tmp_path):
    for seed, last in ((4, 3.5), (3, 4.0)):
        lines = [{**line, "run": 0} for line in curve(seed, [5.0, last], 0.2, 100)]
        folder = log(tmp_path / str(seed), lines, 100)
        first, *rest = (folder / LOG).read_text().splitlines()
        header = json.loads(first)
        header["config"]["seed"] = header["runs"][0]["seed"] = seed
        (folder / LOG).write_text("\n".join([json.dumps(header), *rest]) + "\n")
        script["keep"](folder, f"search/f1/seed-{seed}", 1.0)
    found = of_lines(*script["merged"]("search/f1"))
    assert found["run"].values.tolist() == [3, 4]
    assert found["loss"].values.tolist() == [[5.0, 4.0], [5.0, 3.5]]
    assert script["merged"]("search/f2") is None


@pytest.mark.parametrize(
    ("received", "spike", "status", "qualifies"),
    [
        ([[0.1, 0.3], [0.1, 0.9]], [9.0, 50.0], "running", True),
        ([[0.1, 0.29], [0.1, 0.9]], [9.0, 50.0], "running", False),
        ([[0.1, 0.3], [0.1, 0.9]], [9.0, 49.0], "running", False),
        ([[0.1, 0.3], [0.1, 0.9]], [9.0, 50.0], "diverged", False),
    ],
)
def test_a_run_qualifies_by_half_of_its_heads_and_its_spike(script, received, spike, status, qualifies):
    line = {"received": received, "spike": spike, "loss": 3.0, "status": status}
    assert script["numbers"](line)["qualifies"] is qualifies
