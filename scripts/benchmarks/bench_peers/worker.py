"""A process that does jobs when asked: one JSON object a line, requests on its standard input, replies on its standard output.

    {"job": "sweep", "layers": [0, 1], "save": "a.npz"}  ->  {"seconds": 1.25, ...}

The clock runs around the job alone, so neither starting up, nor talking, nor saving its arrays is timed.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[3]
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

# Every side from this checkout, on the CPU with all its cores, without a network, and with nothing tuned by the caller.
TUNING = ("GLIBC_", "JAX_", "MALLOC_", "KMP_", "MKL_", "OMP_", "TORCH_", "XLA_")
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(TUNING)} | {
    "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "scripts" / "benchmarks"))),
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "JAX_PLATFORMS": "cpu",
    "OMP_NUM_THREADS": str(CORES),
    "TOKENIZERS_PARALLELISM": "false",
}


def versions(*packages: str) -> dict[str, str]:
    """The installed version of each package."""
    return {package: importlib.metadata.version(package) for package in packages}


def serve(jobs: Mapping[str, Callable[..., Mapping[str, Any] | None]]) -> None:
    """Do jobs until the input ends. A job returns arrays by name, written to the file `save` if the request has one.

    Numbers and text among what a job returns go into the reply. What libraries print goes to the error stream.
    """
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    print(json.dumps({"ready": True}), file=replies, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        job, save = jobs[request.pop("job")], request.pop("save", None)
        begun = time.perf_counter()
        result = job(**request) or {}
        reply = {"seconds": time.perf_counter() - begun}
        if save is None:
            reply |= {name: value for name, value in result.items() if isinstance(value, int | float | str | dict)}
        else:
            np.savez(save, **{name: np.asarray(value) for name, value in result.items()})
        print(json.dumps(reply), file=replies, flush=True)


class Worker:
    """A module of this package run as such a process, by some Python, in `folder`."""

    def __init__(self, module: str, folder: Path, python: Path | str = sys.executable, **environment: str):
        self.name, self.log = module, folder / f"{module}.log"
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [str(python), "-m", f"{__package__}.{module}", str(folder)],
                cwd=ROOT,
                env=ENVIRONMENT | environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._reply()

    def ask(self, job: str, **arguments: Any) -> dict[str, Any]:
        """Have a job done. Errors: SystemExit with the end of the worker's log if it died."""
        with suppress(BrokenPipeError):  # the missing reply says it
            print(json.dumps({"job": job, **arguments}), file=self.process.stdin, flush=True)
        return self._reply()

    def close(self) -> None:
        """End the process and wait for it."""
        self.process.stdin.close()
        self.process.wait()

    def _reply(self) -> dict[str, Any]:
        line = self.process.stdout.readline()
        if not line:
            end = "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
            raise SystemExit(f"the worker {self.name} ended with code {self.process.wait()}:\n{end}")
        return json.loads(line)
