"""One run of softmax and of ReLU, trained once for all tests of the task."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
import xarray

from sinkjax.report.section import Section
from sinkjax.studies import run
from sinkjax.studies.papers.trigger.one_layer import OneLayer
from sinkjax.studies.registry import Chosen


class Finished(NamedTuple):
    """A finished study: its config, folder, section and stores."""

    chosen: Chosen
    folder: Path
    section: Section
    stores: dict[str, xarray.Dataset]


def finish(chosen: Chosen, folder: Path) -> Finished:
    """Run a study into a folder."""
    section = run.carry_out(chosen, folder)
    stores = {path.stem: xarray.open_zarr(path, chunks=None).load() for path in folder.glob("*.zarr")}
    return Finished(chosen, folder, section, stores)


def seeds(data: xarray.Dataset, count: int = 8) -> xarray.Dataset:
    """As many runs like the only one of a store, whose numbers can be changed."""
    return data.isel(run=[0] * count).assign_coords(run=range(count)).copy(deep=True)


@pytest.fixture(scope="session")
def one_layer(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """trigger/one-layer with the paper's sizes, one seed, and few held-out sequences."""
    config = OneLayer(seeds=1, steps=3000, sequences=1500, map_sequences=200, moves=(4,))
    return finish(Chosen("trigger/one-layer", config), tmp_path_factory.mktemp("one-layer") / "out")
