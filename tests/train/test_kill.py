"""A training that is killed at any moment and started again by the same call ends with the bits of an undisturbed one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from sinkjax.tasks import load_runs
from tests.train import linear

pytestmark = pytest.mark.kill

ROOT = Path(__file__).parents[2]
COMMAND = """
import sys
from sinkjax.tasks import train
from sinkjax.tasks.language_model.config import Pretrain
from tests.train import linear

linear.register()
config = {}
print("ready", flush=True)
train(config, sys.argv[1], save_every=0.15, progress=False)
"""
REGRESSION = "linear.Linear(seeds=3, steps=6000, learning_rates=(5e-4, 2e-2), eval_every=20, batch=256, together='{}')"
CONFIGS = {
    "map": REGRESSION.format("map"),
    "vmap": REGRESSION.format("vmap"),
    "text": "Pretrain(seeds=3, steps=1200, eval_every=10, limit=60_000, vocabulary=300, context=24, batch=4, eval_batch=4,"
    " layers=2, width=16, heads=2, mlp_width=24)",
}


@pytest.fixture(scope="module", autouse=True)
def _registered():
    linear.register()


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Compiled programs, so that a second start is quick."""
    return tmp_path_factory.mktemp("cache")


def start(out: Path, kind: str, cache: Path) -> subprocess.Popen:
    """The command, up to where the training begins."""
    environment = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "XDG_CACHE_HOME": str(cache),  # where the tokens of a text are kept
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_NUM_CPU_DEVICES": "2",
        "PYTHONPATH": str(ROOT),
    }
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND.format(CONFIGS[kind]), str(out)], env=environment, stdout=subprocess.PIPE
    )
    assert process.stdout.readline() == b"ready\n"
    return process


def finish(out: Path, kind: str, cache: Path) -> None:
    """The command, to its end."""
    with start(out, kind, cache) as process:
        assert process.wait(timeout=900) == 0


def lines(out: Path) -> int:
    """How many lines the log has by now."""
    return (out / "log.jsonl").read_bytes().count(b"\n") if (out / "log.jsonl").exists() else 0


KILLS = {"map": 5, "vmap": 2, "text": 3}
FURTHER = [
    pytest.param(kind, seed, marks=pytest.mark.battery) for kind, kills in KILLS.items() for seed in range(1, -(-40 // kills))
]


@pytest.mark.parametrize(("kind", "seed"), [*((kind, 0) for kind in KILLS), *FURTHER])
def test_a_training_killed_many_times_ends_with_the_same_bits_and_log(kind, seed, tmp_path, cache):
    finish(tmp_path / "undisturbed", kind, cache)
    out, rng, kills = tmp_path / "killed", np.random.default_rng(seed), KILLS[kind]
    total, resumed = lines(tmp_path / "undisturbed"), set()
    for number in range(kills):
        with start(out, kind, cache) as process:
            target = total * (number + 1) // (kills + 2)
            while lines(out) < target and process.poll() is None:
                time.sleep(0.001)
            time.sleep(rng.uniform(0, 0.1))  # anywhere within a call, or while a checkpoint is written
            assert process.poll() is None, "the training ended before it was killed"
            process.kill()
        steps = [int(path.name) for path in (out / "checkpoints").glob("*") if path.name.isdigit()]
        resumed |= {*steps}
    assert len(resumed) > kills // 2  # it did go on from checkpoints
    finish(out, kind, cache)
    assert (out / "log.jsonl").read_bytes() == (tmp_path / "undisturbed" / "log.jsonl").read_bytes()
    killed, whole = load_runs(out), load_runs(tmp_path / "undisturbed")
    assert killed.runs == whole.runs
    assert {ended.outcome for ended in whole.runs} == {"all steps"} | ({"converged"} if kind != "text" else set())
    for got, want in zip(jax.tree.leaves(killed.params), jax.tree.leaves(whole.params), strict=True):
        assert np.asarray(got).tobytes() == np.asarray(want).tobytes()
