"""The queue of plan 0.4: rows follow from the plan and from what is kept, by rules fixed before; kept runs are merged whole."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from sinkjax.tasks import registry

SCRIPT = "queue_runs.py"
SETTING = {"bos": "none", "weight_decay": 0.5, "heads": 8, "head_dim": 16}


def end(sink: float = 0.0, received: float = 0.05, loss: float = 3.0, outcome: str = "all steps") -> dict:
    return {"outcome": outcome, "end": {"sink": [sink], "received": [[received]], "loss": loss}}


@pytest.fixture(scope="module")
def finish(script):
    """Keep what is planned until nothing new follows; merits of rows by name, of others none."""

    def run(merits: dict[str, dict], done: dict | None = None) -> dict:
        done = dict(done or {})
        while left := [run for run in script["planned"](done) if (run.row, run.seed) not in done]:
            done |= {(run.row, run.seed): merits.get(run.row, end()) for run in left}
        return done

    return run


@pytest.fixture(scope="module")
def merits() -> dict[str, dict]:
    """Decay 0.5 is best, then fewer heads, then less decay (which sets the same field as decay 0.5), then the MLP."""
    alone = {"more-decay": 0.4, "heads": 0.3, "less-decay": 0.25, "relu": 0.2, "depth": 0.1}
    found = {f"search/{lever}": end(sink) for lever, sink in alone.items()}
    found |= {"search/more-decay+heads": end(0.6), "gu/base": end(0.2)}
    found |= {
        "chance/sgd@1": end(loss=2.0, outcome="diverged"),
        "chance/sgd@0.3": end(loss=2.5),
        "chance/muon@0.01": end(loss=2.9),
    }
    return found


def test_the_rows_that_depend_on_nothing_come_first_seed_by_seed(script):
    runs = script["planned"]({})
    assert Counter(run.row.partition("/")[0] for run in runs) == {"bos": 48, "search": 10, "chance": 54, "gates": 16}
    assert [(run.row.partition("/")[0], run.seed) for run in runs[:16]] == [("bos", 3)] * 6 + [("search", 0)] * 10
    assert {run.seed for run in runs if "@" in run.row or run.row.startswith("search/")} == {0, 1, 2}


def test_the_search_combines_the_best_levers_that_do_not_set_the_same_field(script, merits):
    alone = {(run.row, run.seed): merits.get(run.row, end()) for run in script["planned"]({}) if run.row.startswith("search/")}
    rows = [run.row.partition("/")[2] for run in script["planned"](alone) if run.row.startswith("search/")]
    assert rows[10:] == [
        *("more-decay+heads", "more-decay+relu", "heads+relu", "more-decay+depth", "more-decay+heads+relu"),
        "more-decay+heads+relu+depth",
    ]
    diverged = alone | {("search/more-decay", 0): end(0.9, outcome="diverged")}
    rows = [run.row.partition("/")[2] for run in script["planned"](diverged) if run.row.startswith("search/")]
    assert rows[10:12] == ["heads+less-decay", "heads+relu"]
    equal = {key: end(0.0, 0.09 if key[0] == "search/theta" else 0.05) for key in alone}
    assert next(run.row for run in script["planned"](equal)[16:] if "+" in run.row).startswith("search/theta+")


def test_rows_are_built_on_the_setting_and_only_if_it_has_grown_a_sink(script, finish, merits):
    done = finish(merits)
    fields = {run.row: run.fields for run in script["planned"](done)}
    assert fields["gu/base"] == SETTING
    assert fields["gu/decay-2"] == {**SETTING, "weight_decay": 2}
    assert fields["gu/position-none"] == {**SETTING, "position": "none"}
    assert Counter(row.partition("/")[0] for row, _ in done) == {"bos": 48, "search": 16, "gu": 144, "chance": 102, "gates": 16}
    without = finish({**merits, "gu/base": end(0.04)})
    assert {row for row, _ in without if row.startswith("gu/")} == {"gu/base"}
    half = {key: value for key, value in done.items() if key != ("gu/base", 10)}
    assert {run.row for run in script["planned"](half) if run.row.startswith("gu/")} == {"gu/base"}


def test_the_rate_with_the_lowest_loss_is_taken_and_one_that_diverges_is_not(script, finish, merits):
    fields = {run.row: run.fields for run in script["planned"](finish(merits))}
    assert fields["chance/sgd"] == {
        "optimiser": "sgd",
        "learning_rates": [0.3],
        "weight_decay": pytest.approx(0.0026667, rel=1e-4),
    }
    assert fields["chance/muon"]["learning_rates"] == [0.01]
    assert fields["chance/adamw@0.004"] == {}
    assert all(run.seed >= 3 for run in script["planned"](finish(merits)) if run.row == "chance/sgd")


def test_every_planned_row_is_a_training(script, finish, merits):
    runs = {run.row: run for run in script["planned"](finish(merits))}
    for run in runs.values():
        assert registry.task(run.config("packaged")).model("").vocab_size == 512
    assert runs["bos/offsets"].config("packaged").offsets == "random"


def test_one_training_in_two_rows_is_made_once_and_shares_make_each_run_once(script, merits, monkeypatch):
    missing = script["missing"]
    kept = {(run.row, run.seed): end() for run in script["planned"]({}) if run.row == "bos/bos-100"}
    kept |= {(f"chance/adamw@{rate}", seed): end(loss=2.0) for rate in ("0.002", "0.004", "0.008") for seed in range(3)}
    kept |= {(f"chance/adamw@{0.004:g}", seed): end(loss=1.0) for seed in range(3)}
    monkeypatch.setitem(missing.__globals__, "kept", lambda root=None: kept)
    whole = [(run.row, run.seed) for run in missing(0, 1)]
    assert not any(row == "chance/adamw" for row, _ in whole)  # bos-100 at its rate
    assert sorted((run.row, run.seed) for share in range(3) for run in missing(share, 3)) == sorted(whole)


def test_finished_runs_of_two_checkouts_are_merged_by_row_and_seed(script, tmp_path, monkeypatch):
    keep, collect = script["keep"], script["collect"]

    def write(root: Path, row: str, seed: int, loss: float, twice: bool = False) -> None:
        monkeypatch.setitem(keep.__globals__, "ROOT", root)
        lines = [[row, seed, step, "running", loss, *[""] * (len(script["HEAD"]) - 5)] for step in (0, 250)]
        if twice:  # killed between the table and the line that says that it is finished
            keep(row.partition("/")[0], lines, {"row": "bos/none", "seed": 0})
        keep(row.partition("/")[0], lines, {"row": row, "seed": seed, "loss": loss})

    here, other = tmp_path / "here", tmp_path / "other"
    write(here, "bos/bos-0", 4, 3.0)
    write(other, "bos/bos-0", 3, 2.0, twice=True)
    write(other, "bos/bos-0", 4, 9.0)
    (other / script["KEPT"] / "bos.jsonl").write_text(
        "".join(
            line
            for line in (other / script["KEPT"] / "bos.jsonl").read_text().splitlines(keepends=True)
            if "bos/none" not in line
        )
    )
    monkeypatch.setitem(collect.__globals__, "ROOT", here)
    collect([here, other])
    kept = here / script["KEPT"]
    entries = [json.loads(line) for line in (kept / "bos.jsonl").read_text().splitlines()]
    assert [(entry["seed"], entry["loss"]) for entry in entries] == [(3, 2.0), (4, 3.0)]
    table = [line.split(",")[1:5] for line in (kept / "bos.csv").read_text().splitlines()[1:]]
    assert table == [
        ["3", "0", "running", "2.0"],
        ["3", "250", "running", "2.0"],
        *(["4", step, "running", "3.0"] for step in ("0", "250")),
    ]
    before = (kept / "bos.csv").read_bytes()
    collect([here, other])
    assert (kept / "bos.csv").read_bytes() == before


def test_numbers_are_short_and_those_that_are_not_finite_are_nothing(script):
    assert script["shortened"]({"a": [1.23456, float("nan")], "b": "x", "c": 3}) == {"a": [1.235, None], "b": "x", "c": 3}
    line = {"loss": None, "sink": [0.25, 0, 0], "received": [[0.1, 0.3]], "spike": [1.0, 12.3456]}
    found = dict(zip(script["COLUMNS"], script["numbers"](line), strict=True))
    assert (found["loss"], found["sink_1"], found["received"], found["spike"]) == ("", "0.25", "0.2", "12.35")
