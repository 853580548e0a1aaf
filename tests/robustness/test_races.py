"""Processes that begin one sweep at the same moment share its calls, and end with the bits of one that was alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr

ROOT = Path(__file__).parents[2]
# For every line on its input, the sweep into the store that the line names; it answers with the calls that it computed.
COMMAND = """
import sys
import time
import sinkjax
from sinkjax.sweeps import run
from tests.sweeps.small import EDITS, MODEL, PROBE, TOKENS

computed, compute = [], run.compute

def counted(computation, schedule, todo):
    for block, chunk, record in compute(computation, schedule, todo):
        computed.append(f"{block}.{chunk.edits[0]}")
        time.sleep(0.05)  # so long that the other one is there before all is done
        yield block, chunk, record

run.compute = counted
sinkjax.sweep(MODEL, TOKENS, EDITS, probe=PROBE, progress=False)
print("ready", flush=True)
for line in sys.stdin:
    out, labels = line.split()
    named = [f"{labels} {number}" for number in range(4)]
    computed.clear()
    try:
        sinkjax.sweep(MODEL, TOKENS, EDITS, probe=PROBE, out=out, labels={"prompt": named}, progress=False)
        print(*computed, flush=True)
    except sinkjax.SinkjaxError as error:
        print("refused:", error, flush=True)
"""


class Racers:
    """Processes that begin when told to."""

    def __init__(self, count: int, cache: Path):
        environment = os.environ | {
            "JAX_COMPILATION_CACHE_DIR": str(cache),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_NUM_CPU_DEVICES": "1",
            "PYTHONPATH": str(ROOT),
        }
        start = [sys.executable, "-c", COMMAND]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.processes = [subprocess.Popen(start, env=environment, **pipes) for _ in range(count)]

    def __enter__(self) -> Racers:
        assert {process.stdout.readline() for process in self.processes} == {"ready\n"}
        return self

    def __exit__(self, *error: object) -> None:
        for process in self.processes:
            process.stdin.close()
        assert [process.wait(timeout=60) for process in self.processes] == [0] * len(self.processes)

    def race(self, out: Path, *labels: str) -> list[str]:
        """What each answers. labels: of the prompts of each, by default the same."""
        for number, process in enumerate(self.processes):
            process.stdin.write(f"{out} {labels[number] if labels else 'same'}\n")
        for process in self.processes:
            process.stdin.flush()
        return [process.stdout.readline().strip() for process in self.processes]


def arrays(out: Path) -> dict[str, bytes]:
    return {name: np.asarray(array).tobytes() for name, array in zarr.open_group(out, mode="r", zarr_format=2).arrays()}


def races(count: int, rounds: int, folder: Path) -> None:
    with Racers(count, folder / "cache") as racers:
        results, shared = folder / "results", 0
        for number in range(rounds):
            said = racers.race(results / f"{number}.zarr")
            computed = [call for line in said for call in line.split()]
            assert {*computed} == {f"0.{edit}" for edit in range(13)}, said
            assert count > 2 or len(computed) <= 13 + 4, (
                said
            )  # two begin at different ends; calls that are under way are not seen
            assert arrays(results / f"{number}.zarr") == arrays(results / "0.zarr")
            shared += all(said)
        assert {path.name for path in results.iterdir()} == {f"{number}.zarr" for number in range(rounds)}
        assert not list(results.rglob(".calls"))
        assert shared  # at least once, each of them did a part
        said = racers.race(results / "another.zarr", *(f"label-{number}" for number in range(count)))
        refused = [line for line in said if "contains another sweep (labels.prompt.sha256" in line]
        assert len(refused) == count - 1


@pytest.mark.apart
@pytest.mark.parametrize(
    ("count", "rounds"),
    [pytest.param(2, 4, marks=pytest.mark.processes), *(pytest.param(count, 20, marks=pytest.mark.battery) for count in (2, 3))],
)
def test_processes_that_begin_one_store_share_its_calls(count, rounds, tmp_path):
    races(count, rounds, tmp_path)
