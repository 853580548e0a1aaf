"""A user's own study: written in a few lines, run, shown without its model, and refused where it is wrong."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from sinkjax.cli import main as cli
from sinkjax.study.folder import RunValues, open_store
from tests.study.tiny import write_both

STUDY = """
from dataclasses import dataclass

from sinkjax import add_logit, mask_key
from sinkjax.study import *
from sinkjax.study.premises import same


@dataclass(frozen=True, kw_only=True)
class Settings(Controlled, Sinks):
    key: int = 0
    \"\"\"the key that is masked\"\"\"


def study(lab: Lab, s: Settings) -> None:
    \"\"\"One key hidden.\"\"\"
    seen, after = sink_rate(s.key, s.eps), sink_rate(s.key + 1, s.eps)
    last = lab.value("last", lambda run: lab.layers - 1, 0)
    places = [*each(lab.layers), ALL, upto(last, "the last one")]
    edits = {place: mask_key(s.key, layers=place.layers) for place in places}
    masks = lab.sweep("masks", edits, [seen, after], lambda rng, case: mask_key(lab.random_position(rng, (0, 1))))
    lab.noop(add_logit(s.key, 0.0))
    lab.claim("moves", "ours", moved(seen, after, masks[ALL]), took=MASKED)
    lab.identity("gone", "ours", same(after, masks[ALL], masks[upto(last, "the last one")], 1e-6))
    lab.draw(lines, (seen, after), over=masks)
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    return write_both(tmp_path_factory.mktemp("own"))


def options(files: Path) -> list[str]:
    shared = ["--model", str(files / "model"), "--text", str(files / "text.txt"), "--prompts", "3", "--length", "12"]
    return [*shared, "--controls", "2", "--control-prompts", "2"]


@pytest.fixture(scope="module")
def finished(files) -> Path:
    file, out = files / "mine.py", files / "out"
    file.write_text(STUDY)
    assert cli.main(["run", str(file), *options(files), "--out", str(out)]) == 0
    return out


def test_its_page_is_made_anew_without_the_model(finished, files, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    for name in ("report.html", "summary.csv", "claims.csv"):
        (copy / name).unlink()
    (files / "model").rename(files / "elsewhere")
    try:
        assert cli.main(["report", str(copy), "--study", str(files / "mine.py")]) == 0
    finally:
        (files / "elsewhere").rename(files / "model")
    for name in ("report.html", "summary.csv", "claims.csv"):
        assert (copy / name).read_bytes() == (finished / name).read_bytes()


def test_a_value_is_written_once_and_decides_for_all(finished, tmp_path):
    """The value of whoever was first stands, also where another process would measure another one."""
    assert json.loads((finished / "values" / "last.json").read_text()) == 2
    first, second = RunValues(tmp_path), RunValues(tmp_path)
    first["last"], second["last"] = 1, 2
    assert first["last"] == second["last"] == RunValues(tmp_path)["last"] == 1


def test_a_run_is_taken_up_with_the_values_that_it_began_with(finished, files, tmp_path):
    out = tmp_path / "again"
    shutil.copytree(finished, out)
    shutil.rmtree(out / "masks.zarr")
    (out / "values" / "last.json").write_text("0")
    assert cli.main(["run", str(files / "mine.py"), *options(files), "--out", str(out)]) == 0
    data = open_store(out / "masks.zarr")["attention_received"].values
    np.testing.assert_array_equal(data[-1], data[1])  # layer 0 alone
    assert open_store(out / "masks.zarr").attrs["values"] == {"last": 0}
