"""A sweep in processes that `jax.distributed` joins: each computes on its own devices, and they share the calls of one store."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray

ROOT = Path(__file__).parents[2]
# One process of several: it sweeps into the store, stopped for ever at its `stop`-th call, and says what it computed.
COMMAND = """
import sys, time
import jax
address, count, number, stop, out = sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5]
if count > 1:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, count, number)
import sinkjax
from sinkjax.sweeps import run
from tests.sweeps.small import CONFIG, EDITS, MODEL, PROBE, TOKENS

computed, compute = 0, run.compute

def counted(job, schedule, todo):
    global computed
    for record in compute(job, schedule, todo):
        computed += 1
        if computed == stop:
            print("stopped", flush=True)
            time.sleep(600)
        yield record

run.compute = counted
if count > 1:
    from jax.sharding import NamedSharding, PartitionSpec
    everywhere = jax.device_put(MODEL.params, NamedSharding(jax.make_mesh((jax.device_count(),), ("data",)), PartitionSpec()))
    try:
        sinkjax.sweep(sinkjax.Model(CONFIG, everywhere, None, {}), TOKENS, EDITS, progress=False)
    except sinkjax.SinkjaxError as error:
        print("refused:", error, flush=True)
print("devices", jax.local_device_count(), "of", jax.device_count(), flush=True)
if count > 1:  # all begin together
    from jax.experimental.multihost_utils import sync_global_devices
    sync_global_devices("begin")
sinkjax.sweep(MODEL, TOKENS, EDITS, probe=PROBE, out=out, progress=False)
print("computed", computed, flush=True)
if count > 1 and not stop:
    jax.distributed.shutdown()  # which waits for the others: a process that is joined to one that has ended is ended too
import os
os._exit(0)  # where another one was killed, there is nobody to wait for
"""


def address() -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{found.getsockname()[1]}"


def start(out: Path, stops: list[int]) -> list[subprocess.Popen]:
    """A process of two devices for each entry: the call at which it is stopped, 0 for none."""
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": "2", "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    where = address()
    return [
        subprocess.Popen(
            [sys.executable, "-c", COMMAND, where, str(len(stops)), str(number), str(stop), str(out)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number, stop in enumerate(stops)
    ]


def calls(process: subprocess.Popen) -> int:
    """How many calls a process computed."""
    said, complaint = process.communicate(timeout=300)
    assert process.returncode == 0, complaint
    if "devices 2 of 4" in said:
        assert "refused: the model lies on devices of several processes" in said
    return int(said.split("computed ")[1])


def numbers(path: Path) -> xarray.Dataset:
    return xarray.open_zarr(path, chunks=None).load()


def assert_same(left: xarray.Dataset, right: xarray.Dataset) -> None:
    assert set(left.data_vars) == set(right.data_vars)
    for name in left.data_vars:
        np.testing.assert_array_equal(left[name].values, right[name].values, err_msg=str(name))


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> tuple[Path, int]:
    """The store of one process that was never disturbed, and its number of calls."""
    out = tmp_path_factory.mktemp("alone") / "store.zarr"
    (process,) = start(out, [0])
    return out, calls(process)


def test_two_processes_share_the_calls_and_have_the_bits_of_one(tmp_path, alone):
    out, expected = alone
    processes = start(tmp_path / "store.zarr", [0, 0])
    assert sum(calls(process) for process in processes) == expected
    assert_same(numbers(tmp_path / "store.zarr"), numbers(out))


@pytest.mark.parametrize("victim", [0, 1])
def test_what_a_killed_process_leaves_is_finished_by_another_number_of_processes(tmp_path, alone, victim):
    out, expected = alone
    stops = [2, 2]
    processes = start(tmp_path / "store.zarr", stops)
    for process in processes:
        said = [*itertools.takewhile(lambda line: line != "stopped\n", process.stdout)]
        assert "devices 2 of 4\n" in said
        assert process.poll() is None  # it stopped, and did not end
    for process in (processes[victim], processes[1 - victim]):  # the coordinator first, or last
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=60)
    (process,) = start(tmp_path / "store.zarr", [0])
    assert 0 < calls(process) < expected
    assert_same(numbers(tmp_path / "store.zarr"), numbers(out))
