"""Hardware is a recorded fact: any number of devices goes on with what another one began, and says so."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import sinkjax
from sinkjax import Probe, SinkjaxError
from sinkjax.checkpoints.model import Model
from sinkjax.runtime import hardware
from sinkjax.sweeps.store import Store
from tests.sweeps.cases import LAYERS, LENGTHS, assert_close, interrupted, model_of, prompts

PROBE = Probe(attention_received=True, resid_argmax=True, nll=True)
EDITS = [
    sinkjax.compose(),
    *(sinkjax.mask_key(key, layers=layer) for key in range(4) for layer in range(LAYERS)),
    *(sinkjax.drop_mlp(sinkjax.per_prompt([1, 2, 3, 4]), layers=layer) for layer in range(LAYERS)),
    *(sinkjax.add_logit(1, 2.0, layers=range(last)) for last in range(1, LAYERS + 1)),
]


def on(model: Model, devices: int) -> Model:
    """The model on the first devices."""
    mesh = Mesh(np.array(jax.devices()[:devices]), ("data",))
    return replace(model, params=jax.device_put(model.params, NamedSharding(mesh, PartitionSpec())))


@pytest.mark.mesh
@pytest.mark.parametrize(("before", "after"), [(1, 2), (1, 8), (2, 1), (2, 8), (8, 1), (8, 2)])
def test_any_number_of_devices_resumes_what_another_began(tiny_config, tiny_params, monkeypatch, tmp_path, capsys, before, after):
    monkeypatch.setattr("sinkjax.sweeps.sharing.WORTH", {"cpu": 0})  # so that some edits have a base of their own
    model, tokens, out = model_of(tiny_config, tiny_params), prompts(tiny_config), tmp_path / "x.zarr"

    def sweep(devices, out):
        return sinkjax.sweep(on(model, devices), tokens, EDITS, probe=PROBE, lengths=LENGTHS, out=out)

    alone = sweep(1, None)
    interrupted(monkeypatch, 3, lambda: sweep(before, out))
    assert 0 < Store(out).done.sum() < Store(out).done.size
    capsys.readouterr()
    together = sweep(after, out)
    [said] = [line for line in capsys.readouterr().err.splitlines() if "hardware" in line]
    assert f'devices was "{before} x cpu", now "{after} x cpu"' in said
    assert "not bit for bit" in said
    assert [machine["devices"] for machine in together.attrs["hardware"]] == [f"{before} x cpu", f"{after} x cpu"]
    for name in alone.variables:
        assert_close(together[name], alone[name], 1e-6, name)


@pytest.fixture
def other_processor(monkeypatch):
    """From here on the machine has another processor."""
    monkeypatch.setattr(hardware, "processor", lambda: "another one")


def test_another_machine_is_told_once_and_recorded(tiny_config, tiny_params, monkeypatch, tmp_path, capsys, other_processor):
    model, tokens, out = model_of(tiny_config, tiny_params), prompts(tiny_config), tmp_path / "x.zarr"
    monkeypatch.setattr("sinkjax.sweeps.plan.TOKENS_PER_CALL", {"cpu": 1})
    sweep = lambda **more: sinkjax.sweep(model, tokens, EDITS, probe=PROBE, lengths=LENGTHS, out=out, **more)  # noqa: E731
    interrupted(monkeypatch, 2, sweep)
    monkeypatch.setattr(hardware, "processor", lambda: "a third one")
    with pytest.raises(SinkjaxError, match=r'processor was "another one", now "a third one".* strict'):
        sweep(strict=True)
    interrupted(monkeypatch, 2, sweep)
    assert capsys.readouterr().err.count("other hardware") == 1
    interrupted(monkeypatch, 2, sweep)
    assert not capsys.readouterr().err
    monkeypatch.setattr(hardware, "processor", lambda: "another one")
    with pytest.raises(SinkjaxError, match="other hardware"):  # a part of it was computed elsewhere
        sweep(strict=True)
    found = sweep()
    assert [machine["processor"] for machine in found.attrs["hardware"]] == ["another one", "a third one"]
    monkeypatch.setattr(hardware, "processor", lambda: "a fourth one")
    assert len(sweep(strict=True).attrs["hardware"]) == 2  # nothing was left to compute
