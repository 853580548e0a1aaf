"""Estimates of edges are derivatives of path patches, exact effects are these patches, and circuits lie between none and all."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sinkjax
from sinkjax import Probe
from sinkjax.checkpoints.model import Model
from tests.explain.test_paths import LENGTHS, OTHER, TOKENS, model

pytestmark = pytest.mark.usefixtures("x64")
READERS = ("q_in", "k_in", "v_in", "mlp_in", "resid")


def metric(record) -> jax.Array:
    """The mean attention to key 0 and the largest |h|, by prompt, so that it depends on every reader."""
    return record["attention_received"][..., 0].mean((1, 2)) + 0.1 * jnp.nanmean(record["resid_norm"][:, -1], axis=-1)


PROBE = Probe(attention_received=True, resid_norm=True)


def value(tiny: Model, edits) -> np.ndarray:
    return np.asarray(metric(sinkjax.forward(tiny, TOKENS, edits=edits, probe=PROBE, lengths=LENGTHS, logits=False).record))


def found(tiny: Model, **more):
    given = {"senders": ("head_out", "mlp_out"), "readers": READERS, "lengths": LENGTHS, "probe": PROBE, "progress": False}
    return sinkjax.attribute_edges(tiny, TOKENS, metric, **{**given, **more})


@pytest.mark.parametrize("block", ["parallel", "experts"])
def test_estimates_are_derivatives_and_exact_effects_are_patches(block: str) -> None:
    tiny = model(block)
    data = found(tiny, positions=[0, 3], replace=OTHER, exact=6)
    for name in ("head 0.2 -> k 1.1", "MLP 0 -> q 2.4", "head 1.0 -> MLP 2", "MLP 1 -> output"):
        edge = data.sel(edge=name)
        sender = (str(edge.sender.values), int(edge.sender_layer), *([int(edge.sender_head)] if edge.sender_head >= 0 else []))
        heads = int(edge.reader_head) if edge.reader_head >= 0 else None
        ends = sender, (str(edge.reader.values), int(edge.reader_layer))
        patch = sinkjax.path(tiny, TOKENS, *ends, OTHER, positions=[0, 3], heads=heads, lengths=LENGTHS)
        whole = patch.terms[0].value

        def at(a: float, patch=patch, whole=whole) -> np.ndarray:
            return value(tiny, patch.replace(terms=(patch.terms[0].replace(value=a * whole),)))

        np.testing.assert_allclose(edge.estimate, (at(1e-5) - at(-1e-5)) / 2e-5, rtol=1e-4, atol=1e-9)
        if np.isfinite(edge.exact).all():
            np.testing.assert_allclose(edge.exact, at(1.0) - at(0.0), rtol=1e-6, atol=1e-10)
    checked = data.where(np.isfinite(data.exact).all("prompt"), drop=True)
    assert checked.sizes["edge"] == 6
    assert (
        abs(checked.estimate.mean("prompt")).min()
        >= abs(data.estimate.mean("prompt")).sortby(abs(data.estimate.mean("prompt")))[-6]
    )


@pytest.mark.parametrize("block", ["parallel", "experts"])
def test_no_edge_is_every_sender_replaced_and_all_edges_are_the_model(block: str) -> None:
    tiny = model(block)
    count = found(tiny, senders=("attn_out", "mlp_out"), exact=None).sizes["edge"]
    data = found(tiny, senders=("attn_out", "mlp_out"), exact=None, circuits=(1, count // 2, count))
    removed = value(tiny, [sinkjax.edit("attn_out", "set", 0.0), sinkjax.edit("mlp_out", "set", 0.0)])
    np.testing.assert_allclose(data.kept.sel(circuit=0), removed, rtol=1e-9)
    np.testing.assert_allclose(data.kept.sel(circuit=count), data.baseline, rtol=1e-9)
    np.testing.assert_allclose(data.faithfulness[[0, -1]], [0, 1], atol=1e-9)
