"""A study from its config to its page, on a tiny model: complete, resumable, repeatable, and never in another's folder."""

from __future__ import annotations

import csv
import dataclasses
import io
from pathlib import Path

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.errors import SinkjaxError
from sinkjax.study import results, run
from sinkjax.study.registry import choose
from tests.study.tiny import streaming, study, write_both

STATISTICS = ("attention_received", "resid_max", "resid_norm", "resid_argmax")
EDITS = [{"compose": []}, {"mask_key": {"key": 0, "layers": {"each": "0:3"}}}, {"mask_key": {"key": 1}}]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_both(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def finished(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished background/streaming."""
    out = tmp_path_factory.mktemp("finished") / "streaming"
    run.carry_out(streaming(files), out)
    return out


def values(store: Path) -> dict[str, np.ndarray]:
    return {name: array.values for name, array in xarray.open_zarr(store, chunks=None).data_vars.items()}


def test_the_summary_is_that_of_the_stored_statistics(finished):
    label = "size 6, first 1"
    nll = xarray.open_zarr(finished / "windows.zarr", chunks=None)["nll"].sel(edit=label)[:, 6:-1]
    (line,) = [line for line in csv.DictReader(io.StringIO((finished / "summary.csv").read_text())) if line["edit"] == label]
    assert float(line["mean"]) == pytest.approx(nll.mean().item())


def test_a_finished_run_comes_back_from_its_folder_and_leaves_its_stores_alone(finished):
    before = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file() and path.suffix != ".html"}
    written = {path: path.stat().st_mtime_ns for path in finished.glob("*.zarr/**/*")}
    (finished / "report.html").unlink()
    chosen = choose(str(finished))
    run.carry_out(chosen, chosen.folder)
    assert (finished / "report.html").is_file()
    assert {path: path.read_bytes() for path in before} == before
    assert {path: path.stat().st_mtime_ns for path in finished.glob("*.zarr/**/*")} == written


def test_an_interrupted_run_goes_on_where_it_stopped(files, finished, tmp_path, monkeypatch):
    whole = run.sweep

    def interrupted(*args, out, **kwargs):
        if out.name == "windows-controls.zarr":
            raise KeyboardInterrupt
        return whole(*args, out=out, **kwargs)

    monkeypatch.setattr(run, "sweep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run.carry_out(streaming(files), tmp_path / "out")
    assert not (tmp_path / "out" / "report.html").exists()
    monkeypatch.setattr(run, "sweep", whole)
    run.carry_out(streaming(files), tmp_path / "out")
    assert (tmp_path / "out" / "summary.csv").read_bytes() == (finished / "summary.csv").read_bytes()


def test_another_config_is_refused_with_the_difference(files, finished):
    with pytest.raises(SinkjaxError, match=r"prompts was 3, now 2; seed .* 1"):
        run.carry_out(streaming(files, prompts=2, seed=1), finished)
    with pytest.raises(SinkjaxError, match="experiment was background/streaming, now sweep"):
        run.carry_out(study("sweep", files, edits=EDITS), finished)


OWN = """
from dataclasses import dataclass

import numpy as np
import xarray

from sinkjax import mask_key
from sinkjax.study import *


@dataclass(frozen=True, kw_only=True)
class Settings(OnText):
    prompts: int = 2
    length: int = 12


def counted(model, batch):
    return xarray.Dataset({"tokens": ("prompt", np.full(2, len(batch.tokens)))})


def study(lab: Lab, s: Settings) -> None:
    forms = lab.onset("forms", lambda layers: largest_activation(0, layers))
    lab.sweep("masks", {layer(forms): mask_key(0)}, [sink_rate(0, 0.3)])
    lab.calculate("counted", counted, ["tokens"], declared={"window": 3}, prompts=2)
"""


@pytest.mark.parametrize(
    ("old", "new", "store"),
    [
        ("layer(forms)", "layer((forms + 1) % lab.layers)", "masks"),
        ("mask_key(0)", "mask_key(1)", "masks"),
        ('"window": 3', '"window": 5', "counted"),
    ],
)
def test_an_own_study_that_was_edited_keeps_no_old_numbers(files, tmp_path, old, new, store):
    mine, settings = tmp_path / "again.py", {"model": str(files / "model"), "text": str(files / "text.txt")}
    mine.write_text(OWN)
    rows = sinkjax.run(str(mine), tmp_path / "out", **settings).rows
    assert sinkjax.run(str(mine), tmp_path / "out", **settings).rows == rows
    mine.write_text(OWN.replace(old, new))
    with pytest.raises(SinkjaxError, match=rf"{store}\.zarr contains another sweep"):
        sinkjax.run(str(mine), tmp_path / "out", **settings)


def test_a_sweep_of_listed_edits_runs_and_compares_with_the_first(files, tmp_path):
    section = run.carry_out(study("sweep", files, edits=EDITS, probe=[*STATISTICS, "nll"]), tmp_path / "out")
    assert section.featured == ("no edit", *(f"mask_key(key=0, layers={layer})" for layer in range(3)), "mask_key(key=1)")
    assert {row.measure for row in section.rows} == {
        "heads that sink on key 0 (%)",
        "largest |h| at position 0",
        "largest |h| at any position but 0",
        "loss (nats per token)",
    }


def test_a_model_in_memory_gives_the_numbers_of_its_folder(files, finished, tmp_path):
    loaded = sinkjax.load(str(files / "model"))
    nameless = dataclasses.replace(loaded, source={**loaded.source, "name": "mine"})
    fields = {"text": str(files / "text.txt"), "prompts": 3, "length": 12}
    here = sinkjax.run("gu/norms", tmp_path / "memory", model=nameless, **fields)
    there = sinkjax.run("gu/norms", tmp_path / "folder", model=str(files / "model"), **fields)
    assert here.rows == there.rows
    assert [one.numbers for one in here.verdicts] == [one.numbers for one in there.verdicts]  # of the untrained twin too
    assert here.provenance["model"] == "mine"
    assert results.build(choose(str(tmp_path / "memory")), tmp_path / "memory").rows == here.rows
    with pytest.raises(SinkjaxError, match=r"dtype is float16, .*float32"):
        sinkjax.run("gu/norms", tmp_path / "other", model=loaded, dtype="float16", **fields)
    with pytest.raises(SinkjaxError, match="trigger/one-layer trains its own"):
        sinkjax.run("trigger/one-layer", tmp_path / "other", model=loaded)
    assert not (tmp_path / "other").exists()
