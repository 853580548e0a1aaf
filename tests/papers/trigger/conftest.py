"""One run of softmax and of ReLU, trained once for all tests of the task."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import xarray

from sinkjax.report.section import Section
from sinkjax.study import run
from sinkjax.study.registry import Chosen, find
from sinkjax.study.results import assemble


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


def config_of(study: str, **settings: Any) -> Any:
    """The config of a study of the trigger task."""
    return find(f"trigger/{study}").settings(**settings)


def judged(study: str, config: Any, stores: dict[str, xarray.Dataset]) -> dict[str, str]:
    """Name of each claim of a study -> its word on some stores."""
    section = assemble(find(f"trigger/{study}").trace(config, None), stores)
    return {verdict.name: verdict.word for verdict in section.verdicts}


def seeds(data: xarray.Dataset, count: int = 8) -> xarray.Dataset:
    """As many runs like the only one of a store, whose numbers can be changed; their weights differ a little, as seeds do."""
    found = data.isel(run=[0] * count).assign_coords(run=range(count)).copy(deep=True)
    return found.assign({name: found[name] + spread(found) for name in ("weight", "share")})


def spread(data: xarray.Dataset) -> xarray.DataArray:
    """A small number for each run."""
    return xarray.DataArray(0.001 * (7 * np.arange(data.sizes["run"]) % 5), {"run": data["run"]})


@pytest.fixture(scope="session")
def one_layer(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """trigger/one-layer with the paper's sizes, one seed, and few held-out sequences."""
    config = config_of("one-layer", seeds=1, steps=3000, sequences=1500, map_sequences=200, moves=(4,))
    return finish(Chosen("trigger/one-layer", config), tmp_path_factory.mktemp("one-layer") / "out")
