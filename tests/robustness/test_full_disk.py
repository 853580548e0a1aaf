"""A disk that takes no more ends a command in one sentence with the path and the bytes, and the same command resumes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest

from sinkjax.tasks import load_runs
from tests.robustness.disk import Disk
from tests.study.tiny import write_both, write_sweep

ROOT = Path(__file__).parents[2]
TRAIN = """
training: pretrain
steps: 20
eval_every: 5
context: 24
vocabulary: 300
batch: 4
eval_batch: 4
layers: 2
width: 64
heads: 2
mlp_width: 96
"""  # a state of 1.2 MB, a model of 0.4 MB
COMMAND = """
import resource, sys
from sinkjax.cli.main import main
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)),) * 2)
sys.exit(main())
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator:
    folder = tmp_path / "disk"
    folder.mkdir()
    made = []

    def mounted(size: int) -> Disk:
        made.append(Disk(folder, size))
        return made[0]

    yield mounted
    if made:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two commands, what they read, and their caches."""
    folder = write_both(tmp_path_factory.mktemp("files"))
    (folder / "train.yaml").write_text(TRAIN)
    write_sweep(folder, folder / "sweep.yaml", prompts=8, length=48, keys=8)
    return folder


def command(files: Path, verb: str, out: Path, limit: int | None = None, cache: Path | None = None) -> tuple[int, list[str]]:
    """Exit code and lines of the error stream. limit: bytes of the largest file that the process may write."""
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, str(limit or -1), verb, str(files / f"{verb}.yaml"), "--out", str(out)],
        env=os.environ | {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(cache or files / "cache")},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stderr.splitlines()


def one_sentence(found: tuple[int, list[str]], folder: Path) -> str:
    """The sentence with which a command ended for want of room in `folder`; all other lines are those of its progress."""
    code, (*progress, sentence) = found
    assert code == 2, found
    assert sentence.startswith("sinkjax: cannot "), found
    assert str(folder) in sentence, found
    assert "No space left on device" in sentence or "File too large" in sentence, found
    for line in progress:
        assert (
            line.startswith(("platform", "loading", "text", "BOS", "training", "writing", "sweep", "train", "summary"))
            or line[:1].isdigit()
        ), found
    return sentence


def assert_same_training(one: Path, other: Path) -> None:
    assert (one / "log.jsonl").read_bytes() == (other / "log.jsonl").read_bytes()
    for got, want in zip(jax.tree.leaves(load_runs(one).params), jax.tree.leaves(load_runs(other).params), strict=True):
        assert np.asarray(got).tobytes() == np.asarray(want).tobytes()
    first, second = ({path.name for path in (folder / "models" / "run-000").iterdir()} for folder in (one, other))
    assert first == second


@pytest.fixture(scope="module")
def trained(files: Path) -> Path:
    """A training that had room."""
    code, errors = command(files, "train", files / "trained")
    assert code == 0, errors
    return files / "trained"


def moments(first: float, *others: float) -> list:
    """Amounts of room: the first one for `make processes`, all for the battery."""
    return [pytest.param(first, marks=pytest.mark.kill), *(pytest.param(other, marks=pytest.mark.battery) for other in others)]


# Of the bytes that a training takes: room for part of the state, for nothing, the log, the metadata, the state but not the model.
@pytest.mark.parametrize("share", moments(0.35, 0.0, 0.01, 0.72, 0.95))
def test_a_training_on_a_full_disk(share, files, trained, disk):
    whole = sum(path.stat().st_size for path in trained.rglob("*"))
    small = disk(max(1 << 12, int(share * whole)))
    out = small.folder / "out"
    sentence = one_sentence(command(files, "train", out), small.folder)
    assert "bytes wanted)" in sentence
    small.grow()
    assert command(files, "train", out)[0] == 0
    assert_same_training(out, trained)


@pytest.mark.parametrize("size", moments(300_000, 1 << 14, 100_000, 500_000, 800_000))
def test_a_sweep_on_a_full_disk(size, files, disk):
    small = disk(size)
    one_sentence(command(files, "sweep", small.folder / "out"), small.folder)
    small.grow()
    code, errors = command(files, "sweep", small.folder / "out")
    assert code == 0, errors
    assert (small.folder / "out" / "report.html").is_file()
