"""A sweep in processes that `jax.distributed` joins: each computes on its own devices, and they share the calls of one store."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import xarray

pytestmark = pytest.mark.processes
ROOT = Path(__file__).parents[2]
# It counts the calls that a process computes; the `stop`-th one calls `stopped`.
COUNTED = """
computed, compute = 0, run.compute

def counted(computation, schedule, todo):
    global computed
    for record in compute(computation, schedule, todo):
        computed += 1
        if computed == stop:
            stopped()
        yield record

run.compute = counted
"""
# One process of several: it sweeps into the store, stopped for ever at its `stop`-th call, and says what it computed.
COMMAND = (
    """
import sys, time
import jax
address, count, number, stop, out = sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5]
if count > 1:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, count, number)
import sinkjax
from sinkjax.sweeps import run
from tests.sweeps.small import CONFIG, EDITS, MODEL, PROBE, TOKENS

def stopped():
    print("stopped", flush=True)
    time.sleep(600)
"""
    + COUNTED
    + """
if count > 1:
    from jax.sharding import NamedSharding, PartitionSpec
    everywhere = jax.device_put(MODEL.params, NamedSharding(jax.make_mesh((jax.device_count(),), ("data",)), PartitionSpec()))
    try:
        sinkjax.sweep(sinkjax.Model(CONFIG, everywhere, None, {}), TOKENS, EDITS, progress=False)
    except sinkjax.SinkjaxError as error:
        print("refused:", error, flush=True)  # without a store that both see
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
)


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
        assert "refused: a sweep of joined processes needs `out`" in said
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
    assert expected <= sum(calls(process) for process in processes) < 2 * expected  # both may compute the last ones
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


SLOW = """
import sys, time
from sinkjax.sweeps import plan, run
plan.TOKENS_PER_CALL = {**plan.TOKENS_PER_CALL, "cpu": 1}
compute = run.compute

def slow(computation, schedule, todo):
    for record in compute(computation, schedule, todo):
        time.sleep(0.3)
        yield record

run.compute = slow
from sinkjax.cli.main import main
sys.exit(main())
"""


def test_the_command_sweeps_a_model_on_the_devices_of_joined_processes(tmp_path):
    """A signal to one of them ends both after the call under way, and the same command ends with the numbers of one process."""
    asked = tmp_path / "mask.yaml"
    edits = ", ".join(f"{{mask_key: {{key: {key}, layers: [{layer}]}}}}" for key in range(12) for layer in (0, 1))
    asked.write_text(f"experiment: sweep\nmodel: mini-softmax\nprompts: 2\nprobe: [resid_max]\nedits: [{edits}]\n")

    def both(*words: str) -> list[subprocess.Popen]:
        where = {"JAX_COORDINATOR_ADDRESS": address(), "JAX_NUM_PROCESSES": "2"}
        shared = os.environ | where | {"JAX_NUM_CPU_DEVICES": "2", "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
        line = [sys.executable, "-c", SLOW, *words, "--join", "--mesh", "model=2,data=2"]
        return [
            subprocess.Popen(line, env=shared | {"JAX_PROCESS_ID": str(number)}, stderr=subprocess.PIPE, text=True)
            for number in range(2)
        ]

    first = both("sweep", str(asked), "--out", str(tmp_path / "run"))
    while not [*(tmp_path / "run").glob("sweep.zarr/.calls/[0-9a-f]*")]:
        assert all(process.poll() is None for process in first)
        time.sleep(0.05)
    first[1].send_signal(signal.SIGTERM)
    assert [process.wait(timeout=120) for process in first] == [143, 143], [process.stderr.read() for process in first]
    second = both("sweep", str(asked), "--out", str(tmp_path / "run"))
    assert [process.wait(timeout=300) for process in second] == [0, 0], [process.stderr.read() for process in second]
    assert (tmp_path / "run" / "report.html").is_file()
    alone = [sys.executable, "-m", "sinkjax", "sweep", str(asked), "--out", str(tmp_path / "alone"), "--devices", "1"]
    assert subprocess.run(alone, env=os.environ | {"PYTHONPATH": str(ROOT)}).returncode == 0
    want, found = (numbers(tmp_path / name / "sweep.zarr") for name in ("alone", "run"))
    for name in want.data_vars:
        np.testing.assert_allclose(found[name].values, want[name].values, rtol=1e-5, err_msg=str(name))
