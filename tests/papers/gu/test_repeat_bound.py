"""gu/repeat-bound: closed forms against the forward pass for every kind of position, and the propositions."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.analysis.estimates import Absent
from sinkjax.checkpoints.native import save
from sinkjax.config_files.locations import location
from sinkjax.model import params
from sinkjax.model.config import Config, NoPosition
from sinkjax.model.positions import Alibi, BucketIndex, Learned, PowerAlibi, RelativeBias
from sinkjax.model.rotary import Rope, YarnScaling
from sinkjax.study import results, run
from sinkjax.study.numbers import Numbers
from sinkjax.study.registry import find
from sinkjax.study.work import Batch
from tests.study.tiny import study, write_both

T = 12
STUDY = find("gu/repeat-bound")
CONFIG = STUDY.settings(length=T, longest=48)
ROPE = Rope(10_000.0)


def model_with(tiny_config: Config, position: object, **other: object) -> SimpleNamespace:
    """A model with these positions and random weights of a size at which scores matter."""
    config = dataclasses.replace(tiny_config, position=position, **other)
    noise = np.random.default_rng(1)
    drawn = jax.tree.map(lambda leaf: leaf + 0.2 * noise.standard_normal(leaf.shape, np.float32), params.init(config, seed=0))
    return SimpleNamespace(config=config, params=drawn)


def measured(model: SimpleNamespace) -> xarray.Dataset:
    """The computation of the study on three tokens, each repeated."""
    tokens = np.repeat(np.array([[7], [8], [9]], np.int32), T, axis=1)
    return STUDY.trace(CONFIG, model.config).calculations["bound"].compute(model, Batch(tokens, np.full(3, T), {}))


def word_on(name: str, model: SimpleNamespace, data: xarray.Dataset) -> str:
    """Whether a proposition holds."""
    claim = STUDY.trace(CONFIG, model.config).claims[name]
    try:
        return "holds" if claim.of(Numbers(CONFIG, model.config, {"bound": data}))[0] else "fails"
    except Absent:
        return "not applicable"


FORMS = [ROPE, Rope(10_000.0, YarnScaling(factor=4.0, original_context=16)), Rope(10_000.0, dims=4), NoPosition()]


@pytest.mark.parametrize("position", [*FORMS, Alibi(), PowerAlibi(), RelativeBias(), BucketIndex()], ids=str)
def test_the_closed_form_is_what_the_forward_does(tiny_config, position):
    model = model_with(tiny_config, position)
    data = measured(model)
    assert data["error"].max() < 2e-5
    assert data["without_positions"].max() < 2e-5
    tokens = np.repeat(np.array([[7], [8], [9]], np.int32), T, axis=1)
    maps = sinkjax.forward(model.params, tokens, model.config, probe=sinkjax.Probe(attention=(0, 1, 2)), logits=False).record
    np.testing.assert_allclose(data["closed"].isel(tokens=0), np.asarray(maps["attention"])[..., 0].mean(axis=-1), atol=2e-5)
    assert np.ptp(np.asarray(maps["attention"])[0, 0, 0, -1]) > 0 or isinstance(position, NoPosition)
    words = {name: word_on(name, model, data) for name in ("hidden", "nope", "biases", "bound")}
    falling = isinstance(position, Alibi | PowerAlibi)
    about = ("holds", "not applicable") if position in FORMS else ("not applicable", "holds" if falling else "not applicable")
    assert words == {"hidden": "holds", "nope": "holds", "bound": about[0], "biases": about[1]}
    assert np.isfinite(data["bound"].values).all() == (position in FORMS)
    if position in FORMS:
        assert (data["closed"] <= data["bound"].min("xi_from") + 1e-12).all()
        assert (data["bound"].sel(xi_from="pairs") <= data["bound"].sel(xi_from="norms") + 1e-12).all()


@pytest.mark.parametrize(
    ("position", "kind", "defined", "lines"),
    [
        (ROPE, "rotary", {"hidden", "nope", "bound"}, {"bound from norms", "bound from pairs"}),
        (NoPosition(), "none", {"hidden", "nope", "bound"}, {"bound from norms", "bound from pairs"}),
        (Alibi(), "scores", {"hidden", "nope", "biases"}, set()),
        (Learned(), "added", {"nope"}, None),
    ],
    ids=["rotary", "none", "alibi", "learned"],
)
def test_the_study_runs_on_models_of_all_kinds_of_positions(tmp_path: Path, monkeypatch, position, kind, defined, lines):
    """Propositions that a kind of positions has hold; the others are untested, by name; without a closed form that is said."""
    monkeypatch.setattr(run, "build", results.section_of)  # nothing is rendered
    write_both(tmp_path)
    llama = sinkjax.load(tmp_path / "model")
    config = dataclasses.replace(llama.config, position=position)
    model = dataclasses.replace(llama, config=config, params=params.init(config, seed=0))
    saved = save(model, tmp_path / "other")
    section = run.carry_out(study("gu/repeat-bound", tmp_path, model=str(saved), longest=48), location(tmp_path / "out"))
    found = {verdict.name: verdict for verdict in section.verdicts}
    identities = {name: one.judgement for name, one in found.items() if one.kind == "identity"}
    assert {name for name, one in identities.items() if one.word == "holds"} == defined
    for name in identities.keys() - defined:
        assert identities[name].word == "not applicable"
        assert identities[name].reason.startswith(f"positions are {kind}, ")
    measures = {row.measure.partition(",")[0] for row in section.rows}
    if lines is None:
        assert "positions are added" in found["lengths"].label
        assert not measures
    else:
        assert {row.condition for row in section.rows} == {"12 tokens", "48 tokens"}
        assert measures >= {"attention to key 0", *lines}
        assert bool(lines) == any("bound" in measure for measure in measures)
