"""Estimates are derivatives, exact effects are what a forward with the edit gives, and both are 0 where nothing is replaced."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest

import sinkjax
from sinkjax import Capture, Probe, Record
from sinkjax.checkpoints.model import Model
from tests.transformer.test_families_edited import BLOCKS, model

pytestmark = pytest.mark.usefixtures("x64")
LENGTHS = np.array([10, 7])
NODES = ("attn_out", "mlp_out", "head_out", "neuron")
LABELS = {"attn_out": "attention 1", "mlp_out": "MLP 1", "head_out": "head 1.4", "neuron": "neuron 1.7"}
CHOSEN = {"attn_out": {}, "mlp_out": {}, "head_out": {"heads": 4}, "neuron": {"dims": 7}}


@pytest.fixture(scope="module")
def tokens(tiny: Model) -> np.ndarray:
    return np.random.default_rng(0).integers(0, tiny.config.vocab_size, (2, 10))


def metric(record: Record) -> jax.Array:
    """The mean attention to key 0, by prompt."""
    return record["attention_received"][..., 0].mean((1, 2))


def run(model: Model, tokens: np.ndarray, edits=(), probe: Probe | None = None) -> Record:
    probe = probe or Probe(attention_received=True)
    return sinkjax.forward(model.params, tokens, model.config, edits, probe, LENGTHS, logits=False).record


@pytest.fixture(scope="module", params=["zero", "mean", "tokens"])
def replaced(request: pytest.FixtureRequest, tiny: Model, tokens: np.ndarray) -> tuple:
    """How nodes are replaced, what they then are at positions 0 and 3 by an independent run, and the attribution."""
    other = np.random.default_rng(1).integers(0, tiny.config.vocab_size, tokens.shape)
    given = {"zero": "zero", "mean": "mean", "tokens": other}[request.param]
    probe = Probe(capture=tuple(Capture(site) for site in NODES))
    record = run(tiny, other if request.param == "tokens" else tokens, probe=probe)

    def donor(site: str) -> np.ndarray:
        """Of the node of layer 1: [B, T, dims]."""
        x = np.asarray(record[site])[:, 1]
        x = x[..., 4, :] if site == "head_out" else x[..., 7:8] if site == "neuron" else x
        if request.param == "zero":
            return np.zeros_like(x)
        return np.broadcast_to(np.nanmean(x, axis=(0, 1)), x.shape) if request.param == "mean" else np.nan_to_num(x)

    found = sinkjax.attribute(
        tiny, tokens, metric, NODES, positions=[0, 3], replace=given, exact=None, lengths=LENGTHS, progress=False
    )
    return given, donor, found


@pytest.mark.parametrize("site", NODES)
def test_an_estimate_is_the_derivative_by_the_degree_of_replacement(tiny: Model, tokens, replaced, site: str) -> None:
    """Against central differences of a forward in which the node is set to (1 - a) z + a r."""
    _, donor, found = replaced
    own = np.asarray(run(tiny, tokens, probe=Probe(capture=(Capture(site, layers=(1,)),)))[site])[:, 0]
    own = np.nan_to_num(own[..., 4, :] if site == "head_out" else own[..., 7:8] if site == "neuron" else own)

    def at(a: float) -> np.ndarray:
        mixed = ((1 - a) * own + a * donor(site))[None]
        mixed = mixed[:, :, :, None] if site == "head_out" else mixed
        return np.asarray(metric(run(tiny, tokens, sinkjax.edit(site, "set", mixed, layers=1, queries=[0, 3], **CHOSEN[site]))))

    slope = (at(1e-5) - at(-1e-5)) / 2e-5
    np.testing.assert_allclose(found.estimate.sel(node=LABELS[site]), slope, rtol=1e-5, atol=1e-9)


def test_exact_effects_are_those_of_single_forwards(tiny: Model, tokens, replaced) -> None:
    given, donor, estimated = replaced
    found = sinkjax.attribute(
        tiny, tokens, metric, ("attn_out", "mlp_out"), [0, 3], replace=given, lengths=LENGTHS, progress=False
    )
    assert found.sizes == {"node": 6, "prompt": 2}
    np.testing.assert_allclose(found.estimate, estimated.estimate[:6], rtol=1e-12)
    np.testing.assert_allclose(found.baseline, metric(run(tiny, tokens)), rtol=1e-12)
    for site in ("attn_out", "mlp_out"):
        edited = run(tiny, tokens, sinkjax.edit(site, "set", donor(site)[None], layers=1, queries=[0, 3]))
        np.testing.assert_allclose(found.exact.sel(node=LABELS[site]), metric(edited) - found.baseline, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.gap, found.exact - found.estimate)
    means = found.estimate.mean("prompt"), found.exact.mean("prompt")
    assert found.attrs["pearson"] == pytest.approx(np.corrcoef(*means)[0, 1])
    columns = [each.values[:, None] for each in means]  # in the last layer there are ties: no attention is left to change
    ranks = [((column > column.T) + 0.5 * (column == column.T)).sum(axis=1) for column in columns]
    assert found.attrs["spearman"] == pytest.approx(np.corrcoef(*ranks)[0, 1])


@pytest.mark.parametrize("block", BLOCKS)
def test_other_kinds_of_blocks_have_true_estimates_and_effects(block: str) -> None:
    """Parallel, post-norm and mixture-of-experts blocks, against central differences and single forwards of a scaled output."""
    toy = model(block)
    tokens = np.random.default_rng(4).integers(0, toy.config.vocab_size, (2, 10))
    found = sinkjax.attribute(toy, tokens, metric, ("attn_out", "mlp_out", "head_out"), [0, 3], lengths=LENGTHS, progress=False)

    def at(site: str, scale: float) -> np.ndarray:
        edit = sinkjax.edit(site, "scale", scale, layers=1, queries=[0, 3], **CHOSEN[site])
        return np.asarray(metric(run(toy, tokens, edit)))

    for site in ("attn_out", "mlp_out", "head_out"):
        node = found.sel(node=LABELS[site])
        assert (abs(node.exact) > 1e-6).all()
        np.testing.assert_allclose(node.estimate, (at(site, 1 - 1e-5) - at(site, 1 + 1e-5)) / 2e-5, rtol=1e-5, atol=1e-9)
        np.testing.assert_allclose(node.exact, at(site, 0.0) - found.baseline, rtol=1e-9, atol=1e-12)


def test_integrated_gradients_tend_to_the_exact_effect(tiny: Model, tokens) -> None:
    whole = {"positions": 0, "layers": [1, 2], "lengths": LENGTHS, "progress": False}
    found = [sinkjax.attribute(tiny, tokens, metric, method="integrated", steps=steps, **whole) for steps in (4, 16)]
    assert list(found[0].node.values) == ["attention 1", "attention 2", "MLP 1", "MLP 2"]
    few, many = (float(abs(each.gap).max()) for each in found)
    assert many < few / 8
    assert many < 0.02 * float(abs(found[0].exact).max())
    np.testing.assert_array_equal(found[0].exact, found[1].exact)
    for each in found:
        gap = abs(each.gap.mean("prompt")).max() / abs(each.exact.mean("prompt")).max()
        assert each.attrs["completeness_gap"] == pytest.approx(float(gap), rel=1e-6)
    unchecked = sinkjax.attribute(tiny, tokens, metric, method="integrated", steps=4, exact=None, **whole)
    assert unchecked.attrs["completeness_gap"] == pytest.approx(found[0].attrs["completeness_gap"], rel=1e-6)


def test_the_largest_estimates_alone_are_checked_and_resumed(tiny: Model, tokens, tmp_path: Path) -> None:
    whole = {"exact": 2, "lengths": LENGTHS, "progress": False, "out": tmp_path / "checked.zarr"}
    found = sinkjax.attribute(tiny, tokens, metric, **whole)
    checked = found.exact.notnull().all("prompt")
    assert int(checked.sum()) == 2
    sizes = abs(found.estimate.mean("prompt"))
    assert float(sizes[checked].min()) >= float(sizes[~checked].max())
    np.testing.assert_array_equal(sinkjax.attribute(tiny, tokens, metric, **whole).exact, found.exact)
