"""background/patch: positions get the donor run's values, and effects are shares of the donor run's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import sinkjax
from sinkjax.study import run
from sinkjax.study.folder import open_store
from sinkjax.study.lab import Lab, Unedited
from sinkjax.study.registry import find
from sinkjax.study.work import Batch
from tests.study.tiny import of_any_size, study, write_both

STUDY = find("background/patch")
SITES = ("resid", "attn_out", "mlp_out", "key", "value")
SEEN = sinkjax.Probe(capture=tuple(sinkjax.Capture(sinkjax.Site(site), name=f"seen_{site}") for site in SITES))
SETTINGS: dict[str, Any] = {"length": 10, "prompts": 2, "controls": 3, "places": (3,)}


@pytest.fixture(scope="module")
def model(tiny_config, tiny_params):
    return SimpleNamespace(config=tiny_config, params=tiny_params)


@pytest.fixture(scope="module")
def batch():
    return Batch(np.random.default_rng(0).integers(0, 61, (2, 10)), np.array([10, 10]), {})


@pytest.fixture(scope="module")
def lab(model, batch) -> Lab:
    """With what a model gives; the layers in which something forms are not asked of it."""
    return STUDY.trace(STUDY.settings(**SETTINGS), model.config, unedited=Unedited(model, batch), values={"forms": 1, "grows": 2})


def test_positions_get_what_the_donor_run_has_there(lab, model, batch):
    def forward(edit: sinkjax.Edit) -> dict:
        return sinkjax.forward(model.params, batch.tokens, model.config, edit, SEEN, batch.lengths).record

    donor, plain = forward(sinkjax.mask_key(0)), forward(sinkjax.compose())
    patched, positions = (
        {sweep.label(case): edit for case, edit in sweep.edits.items()}
        for sweep in (lab.sweeps["patched"], lab.sweeps["positions"])
    )
    for site in SITES:
        name = f"seen_{site}"
        seen = forward(patched[f"site {site} in layer 1"])[name]
        np.testing.assert_array_equal(seen[:, 1, 1], donor[name][:, 1, 1])
        np.testing.assert_array_equal(seen[:, 0], plain[name][:, 0])
        seen = forward(positions[f"site {site}, place 3"])[name]
        np.testing.assert_array_equal(seen[:, :, 3], donor[name][:, :, 3])
        np.testing.assert_array_equal(seen[:, :, :3], plain[name][:, :, :3])


def test_a_run_judges_shares_of_the_donors_effect(tmp_path):
    files = write_both(tmp_path)
    small = {"controls": 2, "control_prompts": 2, "twin": False, "places": [1, 3]}
    with of_any_size():
        section = run.carry_out(study("background/patch", files, **small), tmp_path / "out")
    found = {verdict.name: verdict.judgement for verdict in section.verdicts}
    data = {name: open_store(tmp_path / "out" / f"{name}.zarr") for name in ("donor", "patched", "patched-controls")}
    sizes = {name: np.log(one["resid_max"].values[..., 1].max(axis=-1)) for name, one in data.items()}
    labels = [str(label) for label in data["patched"]["edit"].values]
    row = labels.index("site mlp_out in the layer in which it grows")
    drawn = [number for number, label in enumerate(data["patched-controls"]["edit"].values) if f"of {labels[row]}" in str(label)]
    assert len(drawn) == 2
    expected = sizes["patched"][row, :2] - sizes["patched-controls"][drawn].mean(axis=0)
    assert found["mlp"].D.mean == pytest.approx(expected.mean(), abs=1e-5)
    assert found["mlp"].W.mean == pytest.approx((sizes["donor"][1] - sizes["donor"][0])[:2].mean(), abs=1e-5)
    grown = data["donor"]["resid_max"].values[1, :2, :, 1].mean(axis=0)
    single = labels.index(f"site mlp_out in layer {int(np.diff(grown).argmax())}")
    np.testing.assert_array_equal(data["patched"]["resid_max"].values[row], data["patched"]["resid_max"].values[single])
