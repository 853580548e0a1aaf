"""What holds at every site: an edit acts, acts from its position and its layer on, and does nothing at its neutral strength."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from sinkjax import Capture, Edit, Probe, Site, compose, edit, forward, scale_head_output, shift_positions, swap_embeddings
from sinkjax.edits.site import BEFORE_BLOCKS, SITES
from sinkjax.model.rotary import LayerRopes, Rope
from tests.edits.cases import DENSE, STRENGTH, at
from tests.edits.conftest import LENGTHS

POSITION, LAYER = 4, 1
RESIDUAL = Probe(capture=(Capture(Site.RESID),))

# Every operation that has a neutral strength, at every site.
NEUTRAL: dict[Site, Edit] = {
    Site.EMBED: compose(
        swap_embeddings(3, 3), swap_embeddings([2, 0], [2, 0]), edit("embed", "add", 0.0), edit("embed", "scale", 1)
    ),
    Site.POSITION_VECTOR: compose(
        edit("position_vector", "swap", (3, 3)), edit("position_vector", "add", 0.0), edit("position_vector", "scale", 1)
    ),
    Site.ATTN_IN: compose(edit("attn_in", "add", 0.0), edit("attn_in", "scale", 1.0)),
    Site.Q_IN: compose(edit("q_in", "add", 0.0), edit("q_in", "scale", 1.0, heads=2)),
    Site.K_IN: compose(edit("k_in", "add", 0.0), edit("k_in", "scale", 1.0, kv_heads=1)),
    Site.V_IN: compose(edit("v_in", "add", 0.0), edit("v_in", "scale", 1.0, layers=slice(1, 3))),
    Site.POSITION: compose(shift_positions(query=0, key=0), shift_positions(key=np.zeros(10, int), layers=1)),
    Site.QUERY: compose(edit("query", "add", 0.0), edit("query", "scale", 1.0, heads=2)),
    Site.KEY: compose(edit("key", "add", 0.0), edit("key", "scale", 1.0, kv_heads=1)),
    Site.VALUE: compose(edit("value", "add", 0.0), edit("value", "scale", 1.0, layers=slice(1, 3))),
    Site.HEAD_VALUE: compose(edit("head_value", "add", 0.0, heads=[0, 3]), edit("head_value", "scale", 1.0, layers=slice(1, 3))),
    Site.LOGITS: compose(edit("logits", "add", 0.0), edit("logits", "add", 0.0, relation="self", heads=[0, 5])),
    Site.WEIGHTS: compose(
        edit("weights", "scale", 1.0),
        edit("weights", "scale", 1.0, keys=0, renormalise=True),
        edit("weights", "scale", 1.0, keys=0, renormalise="self"),
    ),
    Site.HEAD_OUT: compose(
        edit("head_out", "add", 0.0),
        *(scale_head_output(slice(None), 1.0, centre=centre) for centre in (None, "dims", "positions")),
    ),
    Site.ATTN_OUT: compose(edit("attn_out", "add", 0.0), edit("attn_out", "scale", 1.0)),
    Site.RESID_MID: compose(edit("resid_mid", "add", 0.0, dims=[1, 5]), edit("resid_mid", "scale", 1.0)),
    Site.MLP_IN: compose(edit("mlp_in", "add", 0.0), edit("mlp_in", "scale", 1.0)),
    Site.ROUTER: compose(edit("router", "add", 0.0), edit("router", "scale", 1.0)),
    Site.NEURON: compose(edit("neuron", "add", 0.0), edit("neuron", "scale", 1.0)),
    Site.MLP_OUT: compose(edit("mlp_out", "add", 0.0), edit("mlp_out", "scale", 1.0)),
    Site.RESID: compose(edit("resid", "add", 0.0, dims=[1, 5]), edit("resid", "scale", 1.0)),
}
INJECTED = {site: edit(site, "inject", 0.0) for site in SITES if "inject" in SITES[site].ops}  # it does not compose with others


def test_every_site_and_every_neutral_operation_is_covered() -> None:
    assert set(STRENGTH) == set(NEUTRAL) == set(SITES) == set(Site)
    for site, neutral in NEUTRAL.items():
        assert {term.site for term in neutral.terms} == {site}
        assert {term.op for term in neutral.terms} == set(SITES[site].ops) - {"set", "inject"}


@pytest.mark.parametrize("site", DENSE)
def test_an_edit_changes_the_logits_from_its_position_and_layer_on(run, site: Site) -> None:
    plain, edited = run(probe=RESIDUAL), run(at(site, POSITION, layer=LAYER), RESIDUAL)
    differs = np.asarray(plain.logits) != np.asarray(edited.logits)
    assert differs[:, POSITION].all()
    assert differs[0, POSITION:].any(axis=1).all()
    assert not differs[:, :POSITION].any()
    depths = (np.asarray(plain.record["resid"]) != np.asarray(edited.record["resid"])) & ~np.isnan(plain.record["resid"])
    assert depths[:, :LAYER].any() == (site in BEFORE_BLOCKS)
    assert depths[:, LAYER:].any(axis=(0, 2, 3)).all()
    assert (np.asarray(edited.record["cells_changed"]) > 0).all()


@pytest.mark.parametrize("centre", [None, "dims", "positions"])
def test_a_mean_over_positions_looks_back_only(run, centre: str | None) -> None:
    """Scaling at every position: what precedes a changed embedding still cannot see it."""
    scaled = scale_head_output(slice(None), 1.5, centre=centre)
    first, second = run(scaled), run(compose(at(Site.EMBED, POSITION), scaled))
    differs = np.asarray(first.logits) != np.asarray(second.logits)
    assert not differs[:, :POSITION].any()
    assert differs[:, POSITION].all()


@pytest.mark.parametrize("layers", [(0, 1, None), (1, 0, 1)])
def test_a_neutral_shift_is_bit_equal_where_rotations_differ(tiny_params, tiny_config, tokens, layers) -> None:
    config = dataclasses.replace(tiny_config, position=LayerRopes((Rope(100.0), Rope(1e4)), layers))
    plain, neutral = (forward(tiny_params, tokens, config, each, RESIDUAL, LENGTHS) for each in ((), shift_positions(query=0)))
    np.testing.assert_array_equal(neutral.logits, plain.logits)


@pytest.mark.parametrize("edits", [*map(NEUTRAL.get, DENSE), *INJECTED.values()], ids=lambda edits: edits.label)
def test_neutral_strength_is_bit_equal_to_no_edit(tiny_params, tiny_config, tokens, edits: Edit) -> None:
    plain, neutral = (forward(tiny_params, tokens, tiny_config, each, RESIDUAL, LENGTHS) for each in ((), edits))
    np.testing.assert_array_equal(neutral.logits, plain.logits)
    np.testing.assert_array_equal(neutral.record["resid"], plain.record["resid"])
    assert not np.asarray(neutral.record["cells_changed"]).any()
    assert (np.asarray(neutral.record["cells_addressed"]) > 0).all()
