"""A series of checkpoints is an axis of one result: each entry what a sweep of that model alone gives, compiled once for all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sinkjax
from sinkjax.checkpoints.load import load
from sinkjax.checkpoints.series import in_folder, series_path
from sinkjax.model import params
from sinkjax.sweeps import models
from tests.sweeps.cases import LENGTHS, prompts

PROBE = sinkjax.Probe(attention_received=True, resid_max=True, nll=True)
EDITS = [sinkjax.compose(), sinkjax.mask_key(0), sinkjax.drop_mlp(0, layers=0), sinkjax.edit("resid", "scale", 1.0)]
STEPS = (0, 90, 1000)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_config) -> Path:
    """A folder as a training leaves it: two runs of three steps."""
    found = tmp_path_factory.mktemp("training")
    for run in range(2):
        for number, step in enumerate(STEPS):
            drawn = params.init(tiny_config, seed=10 * run + number)
            sinkjax.save(sinkjax.Model(tiny_config, drawn, None, {"name": "drawn"}), series_path(found, run, step))
    return found


def ask(folder: Any, config: sinkjax.Config, **options: Any) -> Any:
    return sinkjax.sweep_models(folder, prompts(config), EDITS, PROBE, LENGTHS, progress=False, **options)


def test_each_checkpoint_has_the_numbers_of_its_own_sweep(folder, tiny_config):
    result = ask(folder, tiny_config)
    assert result["attention_received"].dims[:3] == ("checkpoint", "edit", "prompt")
    assert result["step"].values.tolist() == [*STEPS, *STEPS]
    assert result["run"].values.tolist() == [0] * 3 + [1] * 3
    assert result["checkpoint"].values[1] == "run-000/step-000090"
    for row, member in enumerate(in_folder(folder)):
        alone = sinkjax.sweep(load(member.source), prompts(tiny_config), EDITS, PROBE, LENGTHS, progress=False)
        assert result.attrs["sources"][row]["name"] == member.source
        assert result.attrs["unchanged"][row] == alone.attrs["unchanged"] == ["scale resid(value=1)"]
        assert result.attrs["overflowed"][row] == alone.attrs["overflowed"]
        for name in alone.data_vars:
            np.testing.assert_array_equal(result[name].values[row] if "edit" in alone[name].dims else result[name], alone[name])
    assert len({result["nll"].values[row].tobytes() for row in range(6)}) == 6


def test_a_series_is_resumed_where_it_was_cut_short(folder, tiny_config, tmp_path, monkeypatch):
    whole, swept, original = ask(folder, tiny_config), [], models.sweep

    def interrupted(model, *rest, **options):
        if len(swept) == 2:
            raise KeyboardInterrupt
        swept.append(model.source["name"])
        return original(model, *rest, **options)

    monkeypatch.setattr(models, "sweep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ask(folder, tiny_config, out=tmp_path / "out")
    assert len([*(tmp_path / "out").glob("*.zarr")]) == 2
    monkeypatch.setattr(models, "sweep", original)
    result = ask(folder, tiny_config, out=tmp_path / "out")
    for name in ("attention_received", "resid_max", "nll"):
        assert result[name].values.tobytes() == whole[name].values.tobytes()
    assert len([*(tmp_path / "out").glob("run-00*-step-*.zarr")]) == 6
