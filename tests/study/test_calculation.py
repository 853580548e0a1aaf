"""A calculation gives the variables that it declares, and a store that lacks one is refused by name."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray

from sinkjax.analysis.estimates import constant
from sinkjax.analysis.summary import Row
from sinkjax.config_files import files
from sinkjax.errors import SinkjaxError
from sinkjax.study import registry, results, run
from sinkjax.study.folder import is_complete, write_whole
from sinkjax.study.lab import Lab, Study
from sinkjax.study.prose import Prose
from sinkjax.study.registry import Chosen
from sinkjax.study.settings import OnText
from sinkjax.study.work import Batch
from tests.study.tiny import write_both


def squares(model: Any, batch: Batch) -> xarray.Dataset:
    return xarray.Dataset({"squares": (("prompt",), np.arange(len(batch.lengths)) ** 2)})


def study(*variables: str, compute: Callable[..., xarray.Dataset] = squares) -> Study:
    """A study of one calculation that declares these variables."""

    def function(lab: Lab, s: OnText) -> None:
        of = lab.calculate("squares", compute, variables, None, s.prompts)
        lab.describe(
            "largest", "a theorem", lambda read: [Row("squares", "", "m", constant(read.data(of.name)["squares"].max()))]
        )

    return Study("made-up/squares", function, OnText, Prose("Squares", "A claim."), False, "")


@pytest.fixture
def chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Chosen:
    written = write_both(tmp_path / "files")
    declare(monkeypatch, "squares")
    config = OnText(model=str(written / "model"), text=str(written / "text.txt"), prompts=3, length=10, bos="none")
    return Chosen("made-up/squares", config)


def declare(monkeypatch: pytest.MonkeyPatch, *variables: str) -> None:
    made_up = study(*variables)
    monkeypatch.setattr(registry, "declared", dict)
    monkeypatch.setattr(registry, "_registered", {made_up.name: made_up})


def test_the_store_of_a_version_with_other_variables_is_refused_by_name(chosen, tmp_path, monkeypatch):
    run.carry_out(chosen, tmp_path / "out")
    declare(monkeypatch, "cubes", "squares")
    for again in (run.carry_out, results.build):
        with pytest.raises(SinkjaxError, match=r"squares\.zarr has no cubes: .*delete"):
            again(Chosen(chosen.experiment, chosen.config), tmp_path / "out")  # found anew, as by a later process


@pytest.mark.parametrize("moment", range(4))
def test_a_process_that_publishes_while_another_finishes_ends_too(tmp_path, monkeypatch, moment):
    """The other one removes the folder of temporary files between the making of a file and its renaming."""
    dataset = xarray.Dataset({"squares": (("prompt",), np.arange(3) ** 2)})
    begin, calls = files.temporary.named_after, []

    @contextlib.contextmanager
    def overtaken(*args: Any) -> Any:
        with begin(*args) as begun:
            calls.append(begun)
            if len(calls) == 3 + moment:  # the header and the object come first, then the files that are published
                monkeypatch.setattr(files.temporary, "named_after", begin)
                write_whole(dataset, tmp_path / "out", {"a": 1}, {})
            yield begun

    monkeypatch.setattr(files.temporary, "named_after", overtaken)
    write_whole(dataset, tmp_path / "out", {"a": 1}, {})
    assert len(calls) >= 3 + moment
    assert is_complete(tmp_path / "out", {"a": 1})
    assert not (tmp_path / "out" / ".calls").exists()
