"""Runs that did not do what was asked, and studies that say one thing twice, are refused."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from sinkjax import SinkjaxError
from sinkjax.cli import main as cli
from sinkjax.config_files.programs import typed
from sinkjax.study.registry import choose
from sinkjax.study.run import work
from tests.study.tiny import write_model, write_sweep, write_text


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("untrue")
    write_model(folder / "model")
    write_model(folder / "other", rms_norm_eps=1e-6)
    write_text(folder / "text.txt")
    write_sweep(folder, folder / "mine.yaml")
    return folder


@pytest.fixture(scope="module")
def finished(files):
    assert cli.main(["sweep", str(files / "mine.yaml"), "--out", str(files / "out")]) == 0
    return files / "out"


@pytest.mark.parametrize(
    ("was", "now"),
    [("model:", "model: mini-head-norm"), ("prompts:", "prompts: 2"), ("dtype:", "dtype: bfloat16"), ("eps:", "eps: 0.5")],
)
def test_report_refuses_a_config_that_was_edited_since(finished, was, now, capsys) -> None:
    config = finished / "config.yaml"
    text = config.read_text()
    lines = [now if line.startswith(was) else line for line in text.splitlines()]
    assert lines != text.splitlines()
    try:
        config.write_text("\n".join(lines) + "\n")
        assert cli.main(["report", str(finished)]) == 2
    finally:
        config.write_text(text)
    name = was.rstrip(":")
    assert f"was made with {name} " in capsys.readouterr().err
    assert cli.main(["report", str(finished)]) == 0


TWO = """
from dataclasses import dataclass

from sinkjax import attend_self, mask_key
from sinkjax.study import *


@dataclass(frozen=True, kw_only=True)
class Settings(OnText):
    model: str = "mini-softmax"


def study(lab: Lab, s: Settings) -> None:
    lab.sweep("masks", {{ALL: mask_key(0)}}, [loss()])
    lab.sweep("alone", {{ALL: attend_self(5)}}, [loss()], title="{title}")
"""


@pytest.mark.parametrize("title", ["", "alone"])
def test_rows_of_one_name_are_refused(tmp_path, title) -> None:
    file = tmp_path / "mine.py"
    file.write_text(TWO.format(title=title))
    typed(file)
    with nullcontext() if title else pytest.raises(SinkjaxError, match=r"'masks' and 'alone' .*'all layers'"):
        list(work(choose(str(file))))
