"""What holds at every site: an edit acts, acts from its position and its layer on, and does nothing at its neutral strength."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from sinkjax import Capture, Edit, Probe, Site, compose, edit, forward, scale_head_output, shift_positions, swap_embeddings
from sinkjax.model.rotary import LayerRopes, Rope
from sinkjax.model.site import BEFORE_BLOCKS, SITES
from tests.edits.cases import DENSE, at
from tests.edits.conftest import LENGTHS

POSITION, LAYER = 4, 1
RESIDUAL = Probe(capture=(Capture(Site.RESID),))

VALUE = {"add": 0.0, "scale": 1.0, "remove": 0.0, "shift": 0, "swap": (3, 3)}  # operation -> its neutral value
FURTHER: dict[Site, tuple[Edit, ...]] = {
    Site.EMBED: (swap_embeddings([2, 0], [2, 0]),),
    Site.POSITION: (shift_positions(key=np.zeros(10, int), layers=1),),
    Site.QUERY: (edit("query", "scale", 1.0, heads=2),),
    Site.VALUE: (edit("value", "scale", 1.0, kv_heads=1, layers=slice(1, 3)),),
    Site.LOGITS: (edit("logits", "add", 0.0, relation="self", heads=[0, 5]),),
    Site.WEIGHTS: tuple(edit("weights", "scale", 1.0, keys=0, renormalise=how) for how in (True, "self")),
    Site.HEAD_OUT: tuple(scale_head_output(slice(None), 1.0, centre=centre) for centre in ("dims", "positions")),
    Site.RESID: (edit("resid", "add", 0.0, dims=[1, 5]),),
}
# Every operation that has a neutral strength, at every site.
NEUTRAL = {
    site: compose(*(edit(site, op, VALUE[op]) for op in spec.ops if op in VALUE), *FURTHER.get(site, ()))
    for site, spec in SITES.items()
}
INJECTED = {site: edit(site, "inject", 0.0) for site in SITES if "inject" in SITES[site].ops}  # it does not compose with others


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
