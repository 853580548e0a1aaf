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
from sinkjax.train import loop, speed, step
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


def test_every_seed_rate_and_variant_is_a_run_of_its_own(done):
    runs = [ended.run for ended in done.runs]
    assert [run.run for run in runs] == list(range(12))
    assert {(run.variant, run.learning_rate, run.seed) for run in runs} == {
        (variant, rate, seed) for variant in ("square", "absolute") for rate in (0.005, 0.1) for seed in range(3)
    }
    assert len({params_of(done)["w"][run].tobytes() for run in range(12)}) == 12


def test_runs_that_reach_the_goal_stop_there_and_the_others_make_all_steps(done):
    steps = {ended.outcome: [e.steps for e in done.runs if e.outcome == ended.outcome] for ended in done.runs}
    assert set(steps) == {"converged", "all steps"}
    assert set(steps["all steps"]) == {400}
    assert max(steps["converged"]) < 400
    assert len(set(steps["converged"])) > 1


def test_the_parameters_of_a_run_that_stopped_solve_the_task(done):
    for ended in done.runs:
        if ended.outcome == "converged":
            np.testing.assert_allclose(done.of(ended.run.run)["w"], [1, 2, 3, 4], atol=0.05)


def test_a_run_trains_as_it_would_alone(done, tmp_path):
    for ended in (done.runs[4], done.runs[7]):
        seed, rate, variant = ended.run.seed, ended.run.learning_rate, ended.run.variant
        alone = dataclasses.replace(SMALL, seed=seed, seeds=1, learning_rates=(rate,))
        found = train(alone, tmp_path / f"{ended.run.run}", progress=False)
        number = found.task.variants.index(variant)
        assert (found.runs[number].outcome, found.runs[number].steps) == (ended.outcome, ended.steps)
        assert np.array_equal(found.of(number)["w"], done.of(ended.run.run)["w"])


def test_computed_at_once_or_one_after_the_other_is_the_same(done, tmp_path):
    other = train(dataclasses.replace(SMALL, together="vmap"), tmp_path / "vmap", progress=False)
    for name, leaf in params_of(done).items():
        np.testing.assert_allclose(params_of(other)[name], leaf, rtol=1e-4, atol=1e-5)
    for one, two in zip(done.runs, other.runs, strict=True):
        assert one.outcome == two.outcome
        assert abs(one.steps - two.steps) <= 2


def test_shared_data_are_the_same_for_all_seeds_and_said_in_the_log(tmp_path):
    noisy = Linear(seeds=2, steps=60, batch=4, eval_every=30, noise=1.0, stop_below=1e-9)
    own = train(noisy, tmp_path / "own", progress=False)
    shared = train(dataclasses.replace(noisy, shared_data=True), tmp_path / "shared", progress=False)
    assert read(own.folder)[0]["intervals_over"] == "initialisations and data"
    assert read(shared.folder)[0]["intervals_over"].startswith("initialisations only")
    assert not np.array_equal(own.params["w"], shared.params["w"])


def test_the_log_has_each_evaluation_of_each_run_until_it_ends(done):
    header, lines = read(done.folder)
    assert header["training"] == "linear"
    assert header["config"]["steps"] == 400
    assert header["parameters"] == 5
    for ended in done.runs:
        own = [line for line in lines if line["run"] == ended.run.run]
        steps = [line["step"] for line in own]
        assert sorted({*steps}) == [*range(0, ended.steps, 50), ended.steps]  # one that stops at once is evaluated there again
        assert own[0]["loss"] > own[-1]["loss"]
        assert len(own[0]["errors"]) == 2
        assert own[-1]["status"] == ("converged" if ended.outcome == "converged" else "running")
        assert {name: own[0][name] for name in ("seed", "learning_rate", "variant")} == {
            name: value for name, value in ended.run.labels().items() if name != "run"
        }


def test_evaluations_are_those_of_the_stored_parameters(done):
    _, lines = read(done.folder)
    last = {line["run"]: line for line in lines}
    key = step.key(SMALL.data_seed, "held-out data", SMALL.random_bits)
    for run, line in last.items():
        found = done.task.evaluate(done.of(run), done.task.held_out(key), 0)
        assert line["loss"] == pytest.approx(float(found["loss"]), rel=1e-4, abs=1e-9)


def test_a_finished_training_is_read_and_nothing_is_written(done):
    before = {path: path.read_bytes() for path in done.folder.rglob("*") if path.is_file() and path.name != "summary.json"}
    for again in (train(SMALL, done.folder, progress=False), load_runs(done.folder)):
        assert again.runs == done.runs
        assert again.config == SMALL
        assert jax.tree.all(jax.tree.map(np.array_equal, params_of(again), params_of(done)))
    assert all(path.read_bytes() == content for path, content in before.items())


def test_the_summary_says_how_each_run_ended_and_what_a_step_cost(done):
    found = json.loads((done.folder / "summary.json").read_text())
    assert found["milliseconds_per_step_of_a_run"] > 0
    assert [(run["run"], run["outcome"], run["steps"]) for run in found["runs"]] == [
        (ended.run.run, ended.outcome, ended.steps) for ended in done.runs
    ]


def test_a_run_that_diverges_is_named_and_keeps_its_last_finite_parameters(tmp_path):
    said: list[str] = []
    config = dataclasses.replace(SMALL, learning_rates=(0.1, 1e38), seeds=2)
    found = train(config, tmp_path / "out", said.append, progress=False)
    diverged = [ended for ended in found.runs if ended.outcome == "diverged"]
    assert [ended.run.learning_rate for ended in diverged] == [1e38] * 4
    assert all(np.isfinite(found.of(ended.run.run)["w"]).all() for ended in found.runs)
    for ended in diverged:
        assert any(line.startswith(f"{ended.run.label()} diverged at step {ended.steps}") for line in said)
    others = train(dataclasses.replace(config, learning_rates=(0.1,)), tmp_path / "others", progress=False)
    assert np.array_equal(others.of(0)["w"], found.of(0)["w"])  # its neighbours never notice


def test_another_config_is_refused_by_the_fields_that_differ(done, tmp_path):
    other = dataclasses.replace(SMALL, seeds=4, stop_below=0.1)
    with pytest.raises(SinkjaxError, match=r"\(seeds was 3, now 4; stop_below was 0.05, now 0.1\)"):
        train(other, done.folder, progress=False)
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkjaxError, match="exists with other content"):
        train(SMALL, tmp_path, progress=False)
    with pytest.raises(SinkjaxError, match="is a file"):
        train(SMALL, tmp_path / "file", progress=False)
    with pytest.raises(SinkjaxError, match=f"{tmp_path} is not the folder"):
        load_runs(tmp_path)


def test_a_folder_in_which_another_process_trains_is_left_alone(done):
    hold = "with alone(Path(sys.argv[1])): print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", f"import sys; from sinkjax.train.loop import Path, alone\n{hold}", str(done.folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        with pytest.raises(SinkjaxError, match="another process is training in"):
            train(SMALL, done.folder, progress=False)
        other.kill()
    assert train(SMALL, done.folder, progress=False).runs == done.runs


def test_a_folder_is_locked_until_its_models_are_written(done, monkeypatch):
    held = []

    def finish(result, source):
        with pytest.raises(SinkjaxError, match="another process is training in"), loop.alone(result.folder):
            pass
        held.append(loop.Checkpoints(result.folder, look_only=True).latest)

    monkeypatch.setattr(loop, "finish", finish)
    train(SMALL, done.folder, progress=False)
    assert held == [400]


def test_what_was_changed_behind_its_back_is_refused(done, tmp_path):
    shutil.copytree(done.folder, tmp_path / "log")
    (tmp_path / "log" / "log.jsonl").write_text("{}\n")
    with pytest.raises(SinkjaxError, match=r"log.jsonl .*shorter"):
        train(SMALL, tmp_path / "log", progress=False)
    shutil.copytree(done.folder, tmp_path / "state")
    for file in (tmp_path / "state" / "checkpoints").rglob("*"):
        if file.is_file() and file.parent.name == "d":
            file.write_bytes(b"")
    with pytest.raises(SinkjaxError, match=r"the checkpoint .* is damaged"):
        load_runs(tmp_path / "state")


def test_what_a_kill_left_of_a_checkpoint_is_cleared(done, tmp_path):
    shutil.copytree(done.folder, tmp_path / "out")
    left = tmp_path / "out" / "checkpoints" / "7.orbax-checkpoint-tmp"
    left.mkdir()
    (left / "state").write_text("half")
    again = train(SMALL, tmp_path / "out", progress=False)
    assert not left.exists()
    np.testing.assert_array_equal(params_of(again)["w"], params_of(done)["w"])


def test_a_training_that_was_not_finished_is_not_read_as_one(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "call", interrupted(loop.call, after=3))
    with pytest.raises(KeyboardInterrupt):
        train(SMALL, tmp_path / "out", progress=False, save_every=0)
    monkeypatch.undo()
    with pytest.raises(SinkjaxError, match=r"not finished: 10 of 12 runs .*step 100;"):
        load_runs(tmp_path / "out")
    monkeypatch.setattr(loop, "__version__", "9.9")
    said: list[str] = []
    train(SMALL, tmp_path / "out", said.append, progress=False)
    assert re.search(r'\(versions.sinkjax was ".*", now "9.9"\)', said[0])
    train(SMALL, tmp_path / "out", said.append, progress=False)
    assert len(said) == 2  # a finished training is only read


def interrupted(call, after):
    """`call`, which a user interrupts."""
    left = iter(range(after))

    def called(*arguments):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return call(*arguments)

    return called


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"seeds": 0}, "seeds .*at least 1, not 0"),
        ({"learning_rates": ()}, "learning_rates .*at least one"),
        ({"learning_rates": (0.1, 0.1)}, "learning_rates .*once"),
        ({"learning_rates": (-0.1,)}, "learning_rates .*positive .*not -0.1"),
        ({"learning_rates": (float("nan"),)}, "learning_rates .*positive .*not nan"),
        ({"beta2": 1.0}, "beta2 .*at least 0 .*below 1, not 1.0"),
        ({"eval_every": 0}, "eval_every must be at least 1"),
    ],
)
def test_a_field_that_cannot_be_is_refused(fields, sentence):
    with pytest.raises(SinkjaxError, match=sentence):
        Linear(**fields)


def test_event_files_hold_the_values_of_the_log(tmp_path):
    config = dataclasses.replace(SMALL, seeds=1, learning_rates=(0.03,), steps=100)
    for _ in range(2):  # a second time they are made anew, not twice
        train(config, tmp_path / "out", log=["tensorboard"], progress=False)
        files = sorted((tmp_path / "out" / "events").glob("*/events*"))
        assert [file.parent.name for file in files] == ["run-000-seed-0-rate-0.03-square", "run-001-seed-0-rate-0.03-absolute"]
        found = [(event.step, value.tag, value.simple_value) for event in events(files[0]) for value in event.summary.value]
    lines = [line for line in read(tmp_path / "out")[1] if line["run"] == 0]
    wanted = {(line["step"], "loss"): line["loss"] for line in lines}
    wanted |= {(line["step"], f"errors/{place}"): value for line in lines for place, value in enumerate(line["errors"])}
    assert len(found) == len(wanted)
    for at, tag, value in found:
        assert value == pytest.approx(wanted[at, tag], rel=1e-6)


def test_event_files_that_are_made_again_hold_the_speed_too(done, tmp_path):
    shutil.copytree(done.folder, tmp_path / "out")
    speed.note(tmp_path / "out", 50, {"tokens_per_second": 7.0})
    train(SMALL, tmp_path / "out", log=["tensorboard"], progress=False)
    file = next((tmp_path / "out" / "events").glob("run-000*/events*"))
    found = [(event.step, value.simple_value) for event in events(file) for value in event.summary.value if "tokens" in value.tag]
    assert found == [(50, 7.0)]


def test_event_files_that_cannot_be_written_are_refused_before_there_is_a_folder(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(SinkjaxError, match=r"needs tensorboardX, .*: pip install 'sinkjax\[tensorboard\]'"):
        train(SMALL, tmp_path / "out", log=["tensorboard"], progress=False)
    assert not (tmp_path / "out").exists()


WANDB = """
from types import SimpleNamespace
runs, begun = {}, []

def init(id, config, resume, **stated):
    if stated["project"] != "sinkjax" or resume != "allow":
        raise ValueError("no such project")
    begun.append((stated["name"], config["steps"]))
    kept = runs.setdefault(id, {})
    def log(values, step):
        if step in kept:
            raise ValueError(step)
        kept[step] = values
    return SimpleNamespace(step=max(kept, default=-1) + 1, log=log, finish=lambda: None)
"""


def test_curves_go_to_wandb_if_its_package_is_there_and_a_resumed_run_goes_on(tmp_path, monkeypatch):
    (tmp_path / "wandb.py").write_text(WANDB)
    monkeypatch.syspath_prepend(tmp_path)
    config = dataclasses.replace(SMALL, seeds=1, learning_rates=(0.03,), steps=100)
    for _ in range(2):
        train(config, tmp_path / "out", log=["wandb"], progress=False)
    fake = sys.modules["wandb"]
    monkeypatch.delitem(sys.modules, "wandb")
    assert fake.begun == 2 * [("run-000-seed-0-rate-0.03-square", 100), ("run-001-seed-0-rate-0.03-absolute", 100)]
    lines = [line for line in read(tmp_path / "out")[1] if line["run"] == 0]
    first = next(iter(fake.runs.values()))
    assert {step: values["loss"] for step, values in first.items()} == pytest.approx(
        {line["step"]: line["loss"] for line in lines}
    )
    assert first[100]["errors/0"] == pytest.approx(lines[-1]["errors"][0])


def test_places_of_curves_that_cannot_be_are_refused_before_there_is_a_folder(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    for name, said in (("wandb", "pip install wandb"), ("wanbd", "did you mean 'wandb'")):
        with pytest.raises(SinkjaxError, match=said):
            train(SMALL, tmp_path / "out", log=[name], progress=False)
    assert not (tmp_path / "out").exists()


def events(file):
    """The events of a file, read by the format's own framing: length, its checksum, the message, its checksum."""
    from tensorboardX.proto.event_pb2 import Event

    data, at = file.read_bytes(), 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 8], "little")
        event = Event()
        event.ParseFromString(data[at + 12 : at + 12 + size])
        yield event
        at += 16 + size
