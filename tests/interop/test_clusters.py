"""Sweeps on Dask and Ray: the bits of one process, also when a worker is killed while it computes."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import sinkjax
from sinkjax.errors import SinkjaxError
from tests.sweeps import small

pytestmark = pytest.mark.processes
WAIT = 300.0  # seconds until a worker computes
NO_WORK = SimpleNamespace(submit=None, scatter=None, cancel=None)  # fails when it is asked for a call
SWEEP = {"probe": small.PROBE, "progress": False}


@pytest.fixture(scope="module")
def alone():
    return sinkjax.sweep(small.MODEL, small.TOKENS, small.EDITS, **SWEEP)


@pytest.fixture(scope="module")
def dask() -> Iterator[object]:
    distributed = pytest.importorskip("distributed")
    cluster = distributed.LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=None)
    with cluster, distributed.Client(cluster) as client:
        yield client


@pytest.fixture
def ray():
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    yield ray
    ray.shutdown()


@contextlib.contextmanager
def killing(find: Callable[[], int | None]) -> Iterator[list[int]]:
    """Kill the process that `find` returns, as soon as it returns one. Its id is in the list afterwards."""
    killed: list[int] = []

    def wait() -> None:
        end = time.monotonic() + WAIT
        while time.monotonic() < end and not killed:
            if (pid := find()) is not None:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
            time.sleep(0.02)

    thread = threading.Thread(target=wait)
    thread.start()
    yield killed
    thread.join()


def check_equal(found, wanted) -> None:
    assert {*found.data_vars} == {*wanted.data_vars}
    for name in wanted.data_vars:
        np.testing.assert_array_equal(found[name].values, wanted[name].values, strict=True)


def test_dask_has_the_bits_of_one_process_although_a_worker_is_killed(dask, alone, tmp_path: Path):
    pids = dask.run(os.getpid)
    victim = next(iter(pids))

    def busy() -> int | None:
        return pids[victim] if dask.processing().get(victim) else None

    out = tmp_path / "sweep.zarr"
    with killing(busy) as killed:
        found = sinkjax.sweep(small.MODEL, small.TOKENS, small.EDITS, out=out, client=dask, **SWEEP)
    assert killed == [pids[victim]]
    check_equal(found, alone)
    assert killed[0] not in dask.run(os.getpid).values()
    again = sinkjax.sweep(small.MODEL, small.TOKENS, small.EDITS, out=out, client=NO_WORK, **SWEEP)
    check_equal(again, alone)


def test_dask_in_memory_and_in_float64(dask):
    import jax

    with jax.enable_x64(True):
        model = sinkjax.Model(small.CONFIG, jax.tree.map(lambda leaf: leaf.astype("float64"), small.MODEL.params), None, {})
        wanted = sinkjax.sweep(model, small.TOKENS, small.EDITS, **SWEEP)
        found = sinkjax.sweep(model, small.TOKENS, small.EDITS, client=dask, **SWEEP)
    assert found["nll"].dtype == np.float64
    check_equal(found, wanted)


def test_an_edit_that_empties_a_row_is_refused_as_in_one_process(dask):
    nothing = sinkjax.edit("logits", "set", -np.inf, queries=3)
    with pytest.raises(SinkjaxError) as alone:
        sinkjax.sweep(small.MODEL, small.TOKENS, [nothing], **SWEEP)
    with pytest.raises(SinkjaxError) as together:
        sinkjax.sweep(small.MODEL, small.TOKENS, [nothing], client=dask, **SWEEP)
    assert str(together.value) == str(alone.value)


def test_workers_that_die_again_and_again_are_one_sentence(dask):
    dask.cluster.scheduler.allowed_failures = 0
    pids = dask.run(os.getpid)

    def busy() -> int | None:
        return next((pids[worker] for worker, tasks in dask.processing().items() if tasks and worker in pids), None)

    sentence = r"the cluster could not compute a call \(KilledWorker: .*\); finished work is kept"
    with killing(busy), pytest.raises(SinkjaxError, match=sentence):
        sinkjax.sweep(small.MODEL, small.TOKENS, small.EDITS, client=dask, **SWEEP)


def test_ray_has_the_bits_of_one_process_although_a_worker_is_killed(ray, alone, tmp_path: Path):
    import psutil

    def busy() -> int | None:
        for process in psutil.process_iter(["pid", "cmdline"]):
            if " ".join(process.info["cmdline"] or ()).startswith("ray::task"):
                return process.info["pid"]
        return None

    with killing(busy) as killed:
        found = sinkjax.sweep(small.MODEL, small.TOKENS, small.EDITS, out=tmp_path / "sweep.zarr", client="ray", **SWEEP)
    assert len(killed) == 1
    check_equal(found, alone)
