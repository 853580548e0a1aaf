"""A study that is killed at any moment and started again by the same command ends with the files of an undisturbed one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import zarr

from tests.study.tiny import write_both

pytestmark = pytest.mark.kill

ROOT = Path(__file__).parents[2]
WRITTEN = ("config.yaml", "summary.csv", "claims.csv")
# Sweeps with controls and maps, calculations (what the model writes), and a page.
CONFIG = """
experiment: background/streaming
model: {model}
text: {text}
prompts: 4
control_prompts: 2
controls: 4
length: 12
cache: 6
caches: [6]
keep: 1
keeps: [0, 1]
twin: false
"""


def start(files: Path, out: Path) -> subprocess.Popen:
    environment = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(files / "programs"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_NUM_CPU_DEVICES": "1",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-m", "sinkjax", "run", str(files / "study.yaml"), "--out", str(out)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def finish(files: Path, out: Path) -> float:
    """The command, to its end; the seconds that it takes."""
    begun = time.monotonic()
    with start(files, out) as process:
        _, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors[-2000:]
    return time.monotonic() - begun


def content(out: Path) -> dict[str, bytes]:
    """Every array of every store, and the tables."""
    found = {name: (out / name).read_bytes() for name in WRITTEN}
    for store in sorted(out.glob("*.zarr")):
        for name, array in zarr.open_group(store, mode="r", zarr_format=2).arrays():
            values = np.asarray(array)
            found[f"{store.name}/{name}"] = repr(values.tolist()).encode() if values.dtype.kind in "OTU" else values.tobytes()
    return found


@pytest.mark.parametrize("kills", [4, pytest.param(40, marks=pytest.mark.battery)])
def test_a_study_killed_many_times_ends_with_the_same_files(kills, tmp_path):
    files = write_both(tmp_path / "files")
    (files / "study.yaml").write_text(CONFIG.format(model=files / "model", text=files / "text.txt"))
    finish(files, tmp_path / "first")  # which compiles
    seconds = finish(files, tmp_path / "undisturbed")
    rng, killed, rounds = np.random.default_rng(0), 0, 0
    while killed < kills:
        out, rounds = tmp_path / f"killed-{rounds}", rounds + 1
        for _ in range(4):
            with start(files, out) as process:
                try:
                    process.communicate(timeout=rng.uniform(0.2, 1) * seconds)
                except subprocess.TimeoutExpired:
                    process.kill()
                    killed += 1
        finish(files, out)
        assert content(out) == content(tmp_path / "undisturbed")
        assert {path.name for path in out.iterdir()} == {path.name for path in (tmp_path / "undisturbed").iterdir()}
