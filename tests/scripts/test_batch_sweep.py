"""The batch script runs, says what it found, goes on where it was, and refuses in one sentence."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray
from tokenizers import Tokenizer, models, pre_tokenizers

from sinkjax.analysis import metrics
from tests.checkpoints.files import LLAMA, random_weights, write_folder

SCRIPT = Path(__file__).parents[2] / "scripts" / "batch_sweep.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny model whose tokens are letters."""
    folder = write_folder(tmp_path_factory.mktemp("model"), LLAMA, random_weights(LLAMA))
    letters = {letter: number for number, letter in enumerate("?abcdefghijklmnopqrstuvwxyz")}
    tokenizer = Tokenizer(models.WordLevel(letters, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture
def run(folder, tmp_path, monkeypatch, capsys):
    """The script in this process: options to what it prints."""

    def run(*options: str) -> str:
        fixed = [
            "--model",
            str(folder),
            "--text",
            "packaged",
            "--prompts",
            "3",
            "--length",
            "8",
            "--out",
            str(tmp_path / "x.zarr"),
        ]
        monkeypatch.setattr(sys, "argv", [str(SCRIPT), *fixed, *options])
        runpy.run_path(str(SCRIPT), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_it_sweeps_stores_and_prints_every_edit_and_goes_on_where_it_was(run, tmp_path):
    printed = run()
    stored = xarray.open_zarr(tmp_path / "x.zarr", chunks=None)
    assert stored.edit.values.tolist() == ["no edit", "layer 0", "layer 1", "all layers"]
    assert stored.sizes["prompt"] == 3
    assert stored.attrs["text"]["source"].startswith("packaged")
    np.testing.assert_allclose(stored.attention_received[3, ..., 0], 1 / 8, rtol=1e-6)  # only query 0, of 8, still sees key 0
    for label, rate in zip(stored.edit.values, metrics.sink_rate(stored, 0), strict=True):
        (line,) = [line for line in printed.splitlines() if line.startswith(label)]
        assert float(line.removeprefix(label).split()[0]) == pytest.approx(np.mean(rate), abs=1e-3)
    assert run() == printed


def test_it_refuses_in_one_sentence(run):
    run()
    with pytest.raises(SystemExit, match=r"^error: .*x\.zarr .*prompts\.count was 3, now 2"):
        run("--prompts", "2")
    with pytest.raises(SystemExit, match=r"^error: unknown model 'nothing'"):
        run("--model", "nothing")


def test_its_help_shows_the_command():
    done = subprocess.run([sys.executable, str(SCRIPT), "--help"], capture_output=True, text=True, check=True)
    assert "--model smollm2-135m --prompts 32" in done.stdout
