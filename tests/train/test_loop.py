"""Runs train together as they would alone, stop by themselves, and a folder holds one training and what it learned."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
import sys

import jax
import numpy as np
import pytest

from sinkjax.errors import SinkjaxError
from sinkjax.tasks import load_runs, train
from sinkjax.train import loop, step
from sinkjax.train.log import read
from tests.train import linear
from tests.train.linear import Linear

SMALL = Linear(seeds=3, steps=400, learning_rates=(0.005, 0.1), eval_every=50, batch=32, eval_batch=16)


@pytest.fixture(scope="module", autouse=True)
def _registered():
    linear.register()


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    return train(SMALL, tmp_path_factory.mktemp("train") / "small", progress=False)


def params_of(result):
    return {name: np.asarray(leaf) for name, leaf in result.params.items()}


def test_every_seed_rate_and_variant_is_a_run_that_solves_the_task_or_makes_all_steps(done):
    labels = [(ended.run.run, ended.run.variant, ended.run.learning_rate, ended.run.seed) for ended in done.runs]
    grid = [(variant, rate, seed) for variant in ("square", "absolute") for rate in (0.005, 0.1) for seed in range(3)]
    assert labels == [(number, *run) for number, run in enumerate(grid)]
    assert len({params_of(done)["w"][run].tobytes() for run in range(12)}) == 12
    steps = {ended.outcome: [e.steps for e in done.runs if e.outcome == ended.outcome] for ended in done.runs}
    assert set(steps) == {"converged", "all steps"}
    assert set(steps["all steps"]) == {400}
    assert max(steps["converged"]) < 400
    for ended in done.runs:
        if ended.outcome == "converged":
            np.testing.assert_allclose(done.of(ended.run.run)["w"], [1, 2, 3, 4], atol=0.05)


def test_a_run_trains_as_it_would_alone(done, tmp_path):
    for ended in (done.runs[4], done.runs[7]):
        alone = dataclasses.replace(SMALL, seed=ended.run.seed, seeds=1, learning_rates=(ended.run.learning_rate,))
        other = train(alone, tmp_path / f"{ended.run.run}", progress=False)
        number = other.task.variants.index(ended.run.variant)
        assert (other.runs[number].outcome, other.runs[number].steps) == (ended.outcome, ended.steps)
        assert np.array_equal(other.of(number)["w"], done.of(ended.run.run)["w"])


def test_computed_at_once_or_one_after_the_other_is_the_same(done, tmp_path):
    other = train(dataclasses.replace(SMALL, together="vmap"), tmp_path / "vmap", progress=False)
    for name, leaf in params_of(done).items():
        np.testing.assert_allclose(params_of(other)[name], leaf, rtol=1e-4, atol=1e-5)
    assert [ended.outcome for ended in other.runs] == [ended.outcome for ended in done.runs]


def test_shared_data_are_the_same_for_all_seeds(tmp_path):
    noisy = Linear(seeds=2, steps=60, batch=4, eval_every=30, noise=1.0, stop_below=1e-9)
    own = train(noisy, tmp_path / "own", progress=False)
    shared = train(dataclasses.replace(noisy, shared_data=True), tmp_path / "shared", progress=False)
    assert [read(one.folder)[0]["intervals_over"].split()[1] for one in (own, shared)] == ["and", "only:"]
    assert not np.array_equal(own.params["w"], shared.params["w"])
    keys = [[step.data_key(one.config, seed, 3) for seed in (0, 1)] for one in (own, shared)]
    assert [bool((a == b).all()) for a, b in keys] == [False, True]


def test_the_log_has_each_evaluation_of_each_run_by_its_stored_parameters(done):
    header, lines = read(done.folder)
    assert (header["training"], header["config"]["steps"], header["parameters"]) == ("linear", 400, 5)
    held_out = done.task.held_out(step.key(SMALL.data_seed, "held-out data", SMALL.random_bits))
    for ended in done.runs:
        of_run = [line for line in lines if line["run"] == ended.run.run]
        # One that stops at once is evaluated there again.
        assert sorted({line["step"] for line in of_run}) == [*range(0, ended.steps, 50), ended.steps]
        assert of_run[0]["loss"] > of_run[-1]["loss"]
        assert of_run[-1]["status"] == ("converged" if ended.outcome == "converged" else "running")
        assert of_run[0].items() >= ended.run.labels().items()
        measured = done.task.evaluate(done.of(ended.run.run), held_out, 0)
        assert of_run[-1]["loss"] == pytest.approx(float(measured["loss"]), rel=1e-4, abs=1e-9)
        assert len(of_run[-1]["errors"]) == 2


def test_a_finished_training_is_read_and_nothing_is_written(done):
    summary = json.loads((done.folder / "summary.json").read_text())
    assert summary["milliseconds_per_step_of_a_run"] > 0
    assert [(run["run"], run["outcome"], run["steps"]) for run in summary["runs"]] == [
        (ended.run.run, ended.outcome, ended.steps) for ended in done.runs
    ]
    before = {path: path.read_bytes() for path in done.folder.rglob("*") if path.is_file() and path.name != "summary.json"}
    for again in (train(SMALL, done.folder, progress=False), load_runs(done.folder)):
        assert (again.runs, again.config) == (done.runs, SMALL)
        assert jax.tree.all(jax.tree.map(np.array_equal, params_of(again), params_of(done)))
    assert all(path.read_bytes() == content for path, content in before.items())


def test_a_run_that_diverges_is_named_and_keeps_its_last_finite_parameters(tmp_path):
    said: list[str] = []
    config = dataclasses.replace(SMALL, learning_rates=(0.1, 1e38), seeds=2)
    trained = train(config, tmp_path / "out", said.append, progress=False)
    diverged = [ended for ended in trained.runs if ended.outcome == "diverged"]
    assert [ended.run.learning_rate for ended in diverged] == [1e38] * 4
    assert all(np.isfinite(trained.of(ended.run.run)["w"]).all() for ended in trained.runs)
    for ended in diverged:
        assert any(line.startswith(f"{ended.run.label()} diverged at step {ended.steps}") for line in said)
    others = train(dataclasses.replace(config, learning_rates=(0.1,)), tmp_path / "others", progress=False)
    assert np.array_equal(others.of(0)["w"], trained.of(0)["w"])  # its neighbours never notice


def test_another_config_and_other_content_are_refused(done, tmp_path):
    other = dataclasses.replace(SMALL, seeds=4, stop_below=0.1)
    with pytest.raises(SinkjaxError, match=r"\(seeds was 3, now 4; stop_below was 0.05, now 0.1\)"):
        train(other, done.folder, progress=False)
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkjaxError, match="exists with other content"):
        train(SMALL, tmp_path, progress=False)
    shutil.copytree(done.folder, tmp_path / "log")
    (tmp_path / "log" / "log.jsonl").write_text("{}\n")
    with pytest.raises(SinkjaxError, match=r"log.jsonl .*shorter"):
        train(SMALL, tmp_path / "log", progress=False)


def test_a_folder_in_which_another_process_trains_is_left_alone_until_its_models_are_written(done, monkeypatch):
    hold = "with alone(Path(sys.argv[1])): print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", f"import sys; from sinkjax.train.loop import Path, alone\n{hold}", str(done.folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        with pytest.raises(SinkjaxError, match="another process is training in"):
            train(SMALL, done.folder, progress=False)
        other.kill()
    held = []

    def finish(result, source):
        with pytest.raises(SinkjaxError, match="another process is training in"), loop.alone(result.folder):
            pass
        held.append(loop.Checkpoints(result.folder, look_only=True).latest)

    monkeypatch.setattr(loop, "finish", finish)
    assert train(SMALL, done.folder, progress=False).runs == done.runs
    assert held == [400]


def test_the_rest_of_a_killed_checkpoint_is_cleared(done, tmp_path):
    shutil.copytree(done.folder, tmp_path / "out")
    left = tmp_path / "out" / "checkpoints" / "7.orbax-checkpoint-tmp"
    left.mkdir()
    (left / "state").write_text("half")
    again = train(SMALL, tmp_path / "out", progress=False)
    assert not left.exists()
    np.testing.assert_array_equal(params_of(again)["w"], params_of(done)["w"])


def test_a_training_that_was_not_finished_is_continued_and_not_read_as_one(tmp_path, monkeypatch):
    call, calls, said, logged = loop.call, iter(range(3)), [], []

    def interrupted(*arguments):
        if next(calls, None) is None:
            raise KeyboardInterrupt
        call(*arguments)

    monkeypatch.setattr(loop, "call", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(SMALL, tmp_path / "out", on_log=logged.append, progress=False, save_every=0)
    monkeypatch.undo()
    with pytest.raises(SinkjaxError, match=r"not finished: 10 of 12 runs .*step 100;"):
        load_runs(tmp_path / "out")
    monkeypatch.setattr(loop, "__version__", "9.9")
    train(SMALL, tmp_path / "out", said.append, on_log=logged.append, progress=False)
    assert re.search(r'\(versions.sinkjax was ".*", now "9.9"\)', said[0])
    assert logged == read(tmp_path / "out")[1]
    train(SMALL, tmp_path / "out", said.append, progress=False)
    assert len(said) == 2  # a finished training is only read
