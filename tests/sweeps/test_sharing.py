"""Edits that differ only in their layers start from one of themselves: fewer blocks are run, and the numbers are the same."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sinkjax
from sinkjax import Probe, Site
from sinkjax.edits.edit import resolve
from sinkjax.edits.term import Edits, first_layer
from sinkjax.model import params
from sinkjax.sweeps.plan import plan
from sinkjax.sweeps.sharing import Origin, origins
from sinkjax.transformer.cost import block_flops
from tests.sweeps.cases import LENGTHS, model_of, prompts
from tests.sweeps.test_shared import assert_as_naive

L = 8
PROBE = Probe(attention_received=True, resid_norm=True, nll=True)
FIRST = [sinkjax.mask_key(0, layers=range(last)) for last in range(1, L + 1)]
OTHERS = [sinkjax.compose(), sinkjax.mask_key(1, layers=2), sinkjax.mask_key(0, layers=5), sinkjax.drop_mlp(2, layers=range(3))]


@pytest.fixture(scope="module")
def config(tiny_config):
    return replace(tiny_config, layers=L)


@pytest.fixture(scope="module")
def weights(config):
    return params.init(config, seed=0)


@pytest.fixture(autouse=True)
def worth_two_passes(config, monkeypatch):
    """Models of this size never save what two programs take to compile."""
    monkeypatch.setattr("sinkjax.sweeps.sharing.WORTH", {"cpu": 2 * L * block_flops(config, 12) * 4 * 12})


def found(config, edits, worth: float = 2) -> list[Origin]:
    return origins([resolve(edit, config, LENGTHS, 12) for edit in edits], config, L, worth)


def test_masks_of_the_first_layers_start_from_one_of_the_last_of_them(config):
    base = L - 2  # the mask of all layers would serve as well, and stands behind it
    assert found(config, FIRST) == [*[Origin(base, last) for last in range(1, L - 1)], Origin(base, L), Origin(base, L - 1)]
    alone = [Origin(None, 0), *[Origin(None, layer) for layer in (L, 2, 5, 0)]]
    assert found(config, [FIRST[-1], *OTHERS]) == alone


def blocks(edits: Edits, layer: int) -> list[bytes]:
    """All that an edit does in a block."""
    return [np.asarray(term.layer_head)[layer].tobytes() for term in edits]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(chosen=st.lists(st.tuples(st.sets(st.integers(0, L - 1), min_size=1), st.sampled_from([None, 2])), max_size=40))
def test_an_edit_does_what_its_base_does_in_every_block_that_they_share(config, chosen):
    resolved = [
        resolve(sinkjax.add_logit(0, 2.0, layers=sorted(layers), heads=heads), config, LENGTHS, 12) for layers, heads in chosen
    ]
    for edits, origin in zip(resolved, origins(resolved, config, L, 2), strict=True):
        assert origin.block >= first_layer(edits, config)
        if origin.base is not None:
            base = resolved[origin.base]
            assert all(blocks(edits, layer) == blocks(base, layer) for layer in range(origin.block))
            assert origin.block == L or blocks(edits, origin.block) != blocks(base, origin.block)


FAMILIES = {
    "masks": lambda layers: sinkjax.mask_key(0, layers=layers),
    "heads": lambda layers: sinkjax.attend_self(3, layers=layers, heads=(0, 4)),
    "composed": lambda layers: sinkjax.compose(sinkjax.drop_mlp(1, layers=layers), sinkjax.add_logit(2, 1.5, layers=layers)),
    "rotary": lambda layers: sinkjax.shift_positions(query=3, layers=layers),
    "donors": lambda layers: sinkjax.edit(
        Site.RESID, "set", np.linspace(-1, 1, L * 4 * 32).reshape(L, 4, 32), layers=layers, queries=2
    ),
    "prompts": lambda layers: sinkjax.drop_mlp(sinkjax.per_prompt([0, 1, 2, 3]), layers=layers),
}


@pytest.mark.parametrize(("family", "edits_per_call"), [*((family, 3) for family in FAMILIES), ("masks", 1)])
def test_every_site_gives_the_naive_numbers(config, weights, monkeypatch, family, edits_per_call):
    monkeypatch.setattr("sinkjax.sweeps.plan.TOKENS_PER_CALL", {"cpu": edits_per_call * 4 * 12})
    edits = [FAMILIES[family](range(last)) for last in range(1, L + 1)] + OTHERS
    with jax.enable_x64(True):
        model = model_of(config, weights, "float64")
        assert {chunk.base for chunk in plan(config, edits, LENGTHS, 12, PROBE).schedule.chunks} == {None, L - 2}
        assert_as_naive(model, prompts(config), edits, PROBE, LENGTHS, 1e-12)
