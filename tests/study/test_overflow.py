"""Where activations overflow, a run says so in its result, page and CSV, and estimates nothing from it."""

from __future__ import annotations

import csv
import re

import pytest

from sinkjax.cli import main as cli
from tests.study.tiny import write_both

FILE = """
experiment: sweep
model: {model}
text: {text}
dtype: float16
prompts: 4
length: 12
probe: [attention_received, resid_max, nll]
edits:
  - compose: []
  - scale_head_output: {{position: 0, factor: {factor}, layers: 1}}
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_both(tmp_path_factory.mktemp("overflow"))


def run(files, folder, factor):
    folder.mkdir()
    (folder / "mine.yaml").write_text(FILE.format(model=files / "model", text=files / "text.txt", factor=factor))
    code = cli.main(["sweep", str(folder / "mine.yaml"), "--out", str(folder / "out")])
    return code, folder / "out"


def test_overflow_is_said_and_gives_no_estimate(files, tmp_path, capsys) -> None:
    code, out = run(files, tmp_path / "far", 1e6)
    assert code == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "in the store sweep" in printed
    assert "(4 of 4 prompts)" in printed
    assert "(4 of 4 prompts)" in (out / "report.html").read_text()
    rows = list(csv.DictReader((out / "summary.csv").open()))
    cells = ("mean", "effect_mean", "n", "overflowed")
    assert {tuple(row[name] for name in cells) for row in rows if row["edit"] != "no edit"} == {("", "", "0", "4")}
    assert {(bool(row["mean"]), row["overflowed"]) for row in rows if row["edit"] == "no edit"} == {(True, "0")}
    import xarray

    data = xarray.open_zarr(out / "sweep.zarr")
    assert data["non_finite"].dims == ("edit", "prompt", "depth")
    assert not data["non_finite"].values[0].any()
    assert (data["non_finite"].values[1, :, 2:] > 0).all()


def test_a_value_beyond_the_dtype_is_refused_before_anything_is_loaded(files, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("sinkjax.study.run.load_model", None)
    file = tmp_path / "mine.yaml"
    text = FILE.format(model=files / "model", text=files / "text.txt", factor=1)
    file.write_text(text.replace("scale_head_output: {position: 0, factor: 1", "set_residual: {position: 0, value: 70000.0"))
    assert cli.main(["sweep", str(file), "--out", str(tmp_path / "out")]) == 2
    assert re.search("70000 .*RESID .*float16, .*65504", capsys.readouterr().err)
    assert not (tmp_path / "out").exists()
