"""A sweep that is killed at any moment and started again by the same command ends with the bits of an undisturbed one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import zarr

from sinkjax.sweeps.store import Store

pytestmark = pytest.mark.kill

ROOT = Path(__file__).parents[2]
KILLS, WIDTH = 14, 4  # WIDTH: edits of a call
COMMAND = """
import sys
import numpy as np
import sinkjax
from sinkjax.checkpoints.load import Model
from sinkjax.model import params
from sinkjax.model.config import Config, RMSNorm
from sinkjax.model.rotary import Rope
from sinkjax.sweeps import header, plan

header.CHUNK_BYTES = int(sys.argv[2]) * 100_000  # so that a chunk holds this many edits
plan.TOKENS_PER_CALL = {**plan.TOKENS_PER_CALL, "cpu": 4 * 4 * 256}  # and a call
config = Config(layers=6, width=32, heads=4, kv_heads=2, head_dim=8, mlp_width=48, vocab_size=61, context=512,
                norm=RMSNorm(1e-5), position=Rope(1e4), activation="silu", tied=False)
model = Model(config, params.init(config, seed=0), None, {})
tokens = np.random.default_rng(0).integers(0, 61, (4, 256))
edits = [sinkjax.compose()] + [sinkjax.mask_key(key, layers=range(last)) for key in range(20) for last in range(1, 7)]
probe = sinkjax.Probe(attention_received=True, resid_argmax=True, nll=True)
print("ready", flush=True)
sinkjax.sweep(model, tokens, edits, probe=probe, out=sys.argv[1])
"""


def start(out: Path, cache: Path, edits: int) -> subprocess.Popen:
    """The command, up to where the sweep begins. edits: per chunk."""
    environment = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_NUM_CPU_DEVICES": "1",
        "PYTHONPATH": str(ROOT),
    }
    process = subprocess.Popen([sys.executable, "-c", COMMAND, str(out), str(edits)], env=environment, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    return process


def finish(out: Path, cache: Path, edits: int) -> None:
    """The command, to its end."""
    with start(out, cache, edits) as process:
        assert process.wait(timeout=300) == 0


def files(out: Path) -> int:
    """How many calls of a store are done, while it is being filled."""
    return sum(1 for _ in (out / ".calls").glob("[0-9a-f]*-*"))


def arrays(out: Path) -> dict[str, np.ndarray]:
    """Every array of a store."""
    return {name: np.asarray(array) for name, array in zarr.open_group(out, mode="r", zarr_format=2).arrays()}


def assert_same_bits(got: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> None:
    assert got.keys() == want.keys()
    for name, array in want.items():
        assert got[name].dtype == array.dtype
        assert got[name].tobytes() == array.tobytes(), name


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Compiled programs, so that a second start is quick."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module", params=[WIDTH, 1], ids=["chunks of four edits", "chunks of one"])
def edits(request):
    """Edits per chunk: objects become chunks of several calls, or are those of one."""
    return request.param


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, cache, edits):
    """The store of a run that nobody kills."""
    out = tmp_path_factory.mktemp("undisturbed") / "x.zarr"
    finish(out, cache, edits)
    chunks = {path.name.partition(".")[0] for path in (out / "attention_received").glob("[0-9]*")}
    assert len(chunks) == -(-len(arrays(out)["edit"]) // edits)
    return arrays(out)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.battery) for seed in (1, 2))])
def test_a_sweep_killed_many_times_while_it_writes_ends_with_the_same_bits(seed, tmp_path, cache, edits, undisturbed):
    out, rng = tmp_path / "x.zarr", np.random.default_rng(seed)
    total, seen = len(undisturbed["edit"]) // WIDTH, []
    while len(seen) < KILLS:
        target = (files(out) if seen else 0) + max(1, total // (KILLS + 2))
        with start(out, cache, edits) as process:
            while files(out) < target and process.poll() is None:
                time.sleep(0.0005)
            time.sleep(rng.uniform(0, 0.01))  # anywhere within a call
            if process.poll() is not None:
                break
            process.kill()
        seen.append(int(Store(out).done.sum()))
    assert len(seen) >= KILLS // 2
    assert 0 < seen[0] < seen[-1]
    finish(out, cache, edits)
    assert not list(out.rglob("*.new"))
    assert not (out / ".calls").exists()
    assert [path.name for path in tmp_path.iterdir() if out.name in path.name] == [out.name]
    assert_same_bits(arrays(out), undisturbed)
