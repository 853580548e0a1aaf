"""A training in processes that `jax.distributed` joins learns what one process learns, whichever of them is killed on the way."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from sinkjax.train.log import read

pytestmark = pytest.mark.processes
ROOT = Path(__file__).parents[2]
# In float64, in which the order of sums moves nothing that is compared here.
DOCUMENT = """
training: pretrain
dtype: float64
limit: 30_000
vocabulary: 300
context: 16
batch: 8
eval_batch: 8
steps: 14
eval_every: 2
warmup: 4
layers: 1
width: 16
heads: 2
mlp_width: 24
checkpoints: [0, 10]
"""
COMMAND = """
import sys
from sinkjax.cli.main import main
from sinkjax.tasks import registry
registry.train.__wrapped__.__kwdefaults__["save_every"] = 0.0  # after each call
sys.exit(main())
"""
# The second process gets a signal just after both have agreed, at step 4, that none came: they end together after the next call.
LATE = """
import os, signal
from sinkjax.runtime import processes
agree, rounds = processes.largest, []
def late(*values):
    found = agree(*values)
    rounds.append(len(values))
    if rounds.count(2) == 4 and not processes.first():
        os.kill(os.getpid(), signal.SIGTERM)
    return found
processes.largest = late
"""
STARTED: list[subprocess.Popen] = []
CHEAP = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("config") / "mine.yaml"
    path.write_text(DOCUMENT)
    return path


@pytest.fixture(autouse=True)
def _none_is_left():
    """Of a test that fails half-way."""
    yield
    while STARTED:
        STARTED.pop().kill()


def start(file: Path, out: Path, count: int, first: str = "") -> list[subprocess.Popen]:
    """`sinkjax train` in so many joined processes of two devices each, saving after each call. first: code that runs before."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{found.getsockname()[1]}"
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": "2",
        "PYTHONPATH": str(ROOT),
        "XDG_CACHE_HOME": str(file.parent),
        "XLA_FLAGS": CHEAP,
        "JAX_COORDINATOR_ADDRESS": address,
        "JAX_NUM_PROCESSES": str(count),
    }
    command = [sys.executable, "-c", first + COMMAND, "train", str(file), "--out", str(out), *["--join"] * (count > 1)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, env=environment | {"JAX_PROCESS_ID": str(n)}, **pipes) for n in range(count)]
    STARTED.extend(processes)
    return processes


def finish(processes: list[subprocess.Popen]) -> list[str]:
    """What each process printed, once all have ended well."""
    said = [process.communicate(timeout=600) for process in processes]
    for process, (_, complaint) in zip(processes, said, strict=True):
        assert process.returncode == 0, complaint
    return [out for out, _ in said]


def steps(out: Path) -> int:
    """The last committed step."""
    return max((int(path.name) for path in (out / "checkpoints").glob("*") if path.name.isdigit()), default=-1)


def numbers(out: Path) -> tuple[list, dict[str, np.ndarray]]:
    """The entries of the log, and the final parameters."""
    return read(out)[1], load_file(out / "models" / "run-000" / "model.safetensors")


def assert_equal(out: Path, alone: Path) -> None:
    (lines, params), (others, whole) = numbers(out), numbers(alone)
    assert [line["step"] for line in lines] == [line["step"] for line in others]
    for line, want in zip(lines, others, strict=True):
        assert {*line} == {*want}
        for name in want.keys() - {"variant", "status"}:
            np.testing.assert_allclose(
                np.array(line[name], float), np.array(want[name], float), rtol=1e-6, atol=1e-9, err_msg=name
            )
    assert {*params} == {*whole}
    for name, want in whole.items():
        assert want.dtype == np.float64
        leaf = params[name]
        np.testing.assert_allclose(leaf, want, rtol=1e-6, atol=1e-9 * np.abs(want).max())
    for name in ("run-000/step-000000", "run-000/step-000010"):
        assert (out / "series" / name).is_dir()


@pytest.fixture(scope="module")
def alone(file, tmp_path_factory) -> Path:
    """The folder of one process that was never disturbed, its one run on one device."""
    out = tmp_path_factory.mktemp("alone") / "out"
    finish(start(file, out, 1))
    return out


def test_two_processes_learn_what_one_does_and_the_first_says_so(file, alone, tmp_path):
    said = finish(start(file, tmp_path / "out", 2))
    assert "run" in said[0]
    # Gloo prints by itself, and its threads may write a line's end after another line.
    assert not [line for line in said[1].splitlines() if line.strip() and not line.startswith("[Gloo]")]
    assert read(tmp_path / "out")[0]["devices"].startswith("4 x ")
    assert_equal(tmp_path / "out", alone)


def reach(processes: list[subprocess.Popen], out: Path, step: int) -> None:
    """Wait until this step is committed."""
    while steps(out) < step:
        assert all(process.poll() is None for process in processes), [process.communicate() for process in processes]
        time.sleep(0.01)


def test_a_signal_to_one_process_ends_all_of_them_after_the_call_under_way(file, tmp_path):
    processes = start(file, tmp_path / "out", 2, LATE)
    for process in processes:
        _, complaint = process.communicate(timeout=600)
        assert process.returncode == 128 + signal.SIGTERM, complaint
        assert "interrupted; resume with: sinkjax train" in complaint
    assert read(tmp_path / "out")[1][-1]["step"] == steps(tmp_path / "out") < 14


@pytest.mark.parametrize(("before", "victim", "after"), [(2, 0, 1), (2, 1, 1), (1, 0, 2)])
def test_another_number_of_processes_finishes_what_a_killed_one_leaves(file, alone, tmp_path, before, victim, after):
    processes = start(file, tmp_path / "out", before)
    reach(processes, tmp_path / "out", 6)
    for process in (processes[victim], *processes):  # the others would end too, but as late as JAX misses the first one
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=60)
    reached = steps(tmp_path / "out")
    assert 6 <= reached < 14
    finish(start(file, tmp_path / "out", after))
    assert_equal(tmp_path / "out", alone)
