"""A forward that goes on from cached keys and values gives the logits of one over all positions, under edits at every site."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import jax
import numpy as np
import pytest

import sinkjax
from sinkjax import Config, Edit, Probe, Site
from sinkjax.edits.edit import resolve
from sinkjax.model.attention_bias import KeyValueBias, SinkToken
from sinkjax.model.normalisers import NAMED
from sinkjax.model.positions import Alibi
from sinkjax.model.rotary import DynamicScaling, LayerRopes, LongScaling, Rope
from sinkjax.model.site import lacks
from sinkjax.transformer import attention
from sinkjax.transformer.cached import Unstacked, go_on, why_not
from sinkjax.transformer.spec import ForwardSpec
from tests.edits.cases import at
from tests.model.variants import draw
from tests.transformer.test_families_edited import BLOCKS

START, TOTAL = 5, 12
ONE_BY_ONE = (START, 1, 1, 1, 1, 1, 1, 1)
TOKENS = np.random.default_rng(0).integers(23, size=(2, TOTAL))
GROWING = Rope(100.0, DynamicScaling(2.0, original_context=TOTAL))
VARIANTS = {
    "layers": {"windows": (3, None), "position": LayerRopes((Rope(100.0),), (0, None)), "normaliser": NAMED["sink-logit"]},
    "prefix": {"prefix": 3, "position": Alibi(), "normaliser": NAMED["mlp-kernel-max"], "kv_bias": KeyValueBias()},
    "sink token": {"position": GROWING, "normaliser": NAMED["relu-index"], "kv_bias": SinkToken()},
}


@pytest.fixture(scope="module", autouse=True)
def x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def everywhere(config: Config) -> Edit:
    """At every site, in the prompt and after it; what needs other rows in the prompt alone."""
    sites = [site for site in Site if not lacks(config, site)]
    moved = {Site.POSITION: np.arange(TOTAL) ** 2 % 7}
    edits = [at(site, [1, 4, 6, 9], moved.get(site)) for site in sites]
    edits += [sinkjax.swap_embeddings(0, 3), sinkjax.scale_head_output([2, 4], 1.5, centre="positions")]
    return sinkjax.compose(*edits, sinkjax.mask_key(2, heads=1), sinkjax.edit("logits", "add", 0.5, distances=[2, 6]))


def differ(config: Config, edits: Edit | tuple, pieces: Sequence[int], more: int = 0) -> float:
    """By how much logits after each of the pieces, read in turn, differ from those of a forward at once.

    more: rows that fill up the first piece, and positions beyond the last.
    """
    params = draw(config)
    want = np.asarray(sinkjax.forward(params, TOKENS, config, edits, Probe()).logits)
    resolved = resolve(edits, config, [TOTAL, TOTAL], TOTAL)
    assert why_not(config, resolved, START, TOTAL) is None
    caches, done, differences = None, 0, []
    spec, room = ForwardSpec(config=config, probe=Probe(), logits=True), TOTAL + more
    unstacked, resolved = Unstacked.of(params, spec), tuple(term.padded(room) for term in resolved)
    for count in pieces:
        new = np.pad(TOKENS[:, done : done + count], ((0, 0), (0, 0 if done else more)))
        logits, caches, _ = go_on(unstacked, new, done, count, caches, resolved, spec=spec, total=room)
        done += count
        differences.append(np.abs(logits - want[:, done - 1]))
    assert np.abs(want).max() > 1e-2
    return float(np.max(differences))  # NaN if one is


@pytest.mark.parametrize("name", [*VARIANTS, *BLOCKS])
def test_going_on_gives_what_one_forward_gives(tiny_config, name: str) -> None:
    config = BLOCKS[name] if name in BLOCKS else replace(tiny_config, layers=2, **VARIANTS[name])
    assert differ(config, everywhere(config), ONE_BY_ONE) < 1e-11


@pytest.mark.parametrize("name", [name for name in VARIANTS if name != "sink token"])
def test_rows_that_fill_up_a_shape_change_nothing(tiny_config, name: str) -> None:
    config = replace(tiny_config, layers=2, context=TOTAL + 3, **VARIANTS[name])
    assert differ(config, everywhere(config), ONE_BY_ONE, more=3) < 1e-11


def test_pieces_may_be_long_and_attend_in_blocks(tiny_config, monkeypatch) -> None:
    monkeypatch.setattr(attention, "QUERY_TILE", 2)
    config = replace(tiny_config, layers=1)
    assert differ(config, at(Site.LOGITS, 8), (START, 6, 1)) < 1e-12


@pytest.mark.parametrize(
    ("changes", "edits", "first", "reason"),
    [
        ({"prefix": 5}, (), 5, None),
        ({"prefix": 6}, (), 5, "within a prefix of 6 tokens"),
        ({"position": GROWING}, (), 5, None),
        ({"position": Rope(100.0, DynamicScaling(2.0, TOTAL - 2))}, (), 5, "rotary frequencies change"),
        ({"position": Rope(100.0, LongScaling((1.0,) * 4, (2.0,) * 4, 5, 1.0))}, (), 5, "rotary frequencies change"),
        ({"position": Rope(100.0, LongScaling((1.0,) * 4, (2.0,) * 4, 4, 1.0))}, (), 5, None),
        ({}, sinkjax.scale_head_output([2, 4], 1.5, centre="positions"), 5, None),
        ({}, sinkjax.scale_head_output([2, 5], 1.5, centre="positions"), 5, "centred over positions"),
        ({}, sinkjax.scale_head_output(slice(None), 1.5, centre="dims"), 5, None),
        ({}, sinkjax.swap_embeddings(1, 4), 5, None),
        ({}, sinkjax.swap_embeddings(1, 4), 4, "swaps positions"),
    ],
)
def test_what_cannot_go_on_is_named(tiny_config, changes: dict, edits, first: int, reason: str | None) -> None:
    config = replace(tiny_config, **changes)
    found = why_not(config, resolve(edits, config, [TOTAL], TOTAL), first, TOTAL)
    assert found is None if reason is None else reason in found
