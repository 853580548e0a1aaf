"""A path changes what one reader reads; all paths from a sender together are its replacement."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sinkjax
from sinkjax import Capture, Probe
from sinkjax.checkpoints.model import Model
from sinkjax.model import params
from tests.transformer.test_families_edited import BLOCKS

pytestmark = pytest.mark.usefixtures("x64")
LENGTHS = np.array([10, 7])
TOKENS, OTHER = (np.random.default_rng(seed).integers(0, 23, (2, 10)) for seed in (0, 1))


def model(block: str) -> Model:
    noise = np.random.default_rng(0)
    drawn = jax.tree.map(lambda leaf: jnp.asarray(0.5 * noise.standard_normal(leaf.shape)), params.abstract(BLOCKS[block]))
    return Model(BLOCKS[block], drawn, None, {"kind": "arrays", "name": block})


def run(model: Model, edits, probe: Probe | None = None):
    return sinkjax.forward(model.params, TOKENS, model.config, edits, probe or Probe(), LENGTHS)


@pytest.mark.parametrize("block", ["parallel", "experts"])
@pytest.mark.parametrize(("site", "readers"), [("mlp_out", ()), ("attn_out", (("mlp_in", 0),))])
def test_all_paths_from_a_sender_together_replace_it(block: str, site: str, readers: tuple) -> None:
    """Attention's three readings are three paths; a parallel block's MLP does not read its own attention."""
    tiny = model(block)
    readers = () if block == "parallel" else readers
    ends = [("q_in", 1), ("k_in", 1), ("v_in", 1), ("mlp_in", 1), ("attn_in", 2), ("mlp_in", 2), ("resid", 2), *readers]
    where = {"replace": OTHER, "positions": [0, 3], "lengths": LENGTHS}
    together = run(tiny, [sinkjax.path(tiny, TOKENS, (site, 0), end, **where) for end in ends])
    probe = Probe(capture=(Capture(site, layers=(0,)),))
    donor = np.nan_to_num(sinkjax.forward(tiny.params, OTHER, tiny.config, (), probe, LENGTHS).record[site][:, 0])
    node = run(tiny, sinkjax.edit(site, "set", donor[None], layers=0, queries=[0, 3]))
    assert abs(node.logits - run(tiny, ()).logits).max() > 1e-3
    np.testing.assert_allclose(together.logits, node.logits, rtol=1e-9, atol=1e-10)


def test_one_path_leaves_other_readers_as_they_are() -> None:
    tiny = model("experts")
    probe = Probe(capture=(Capture("attn_in"), Capture("query"), Capture("key"), Capture("mlp_in")))
    edited = sinkjax.path(tiny, TOKENS, ("mlp_out", 0), ("k_in", 2), heads=1, positions=0, lengths=LENGTHS)
    before, after = run(tiny, (), probe).record, run(tiny, edited, probe).record
    same = partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-12)  # two programs, equal to rounding in float64
    same(after["attn_in"], before["attn_in"])
    same(after["queries"], before["queries"])
    moved = (np.abs(np.nan_to_num(np.asarray(after["keys"] - before["keys"]))) > 1e-12).any(axis=(0, 4))
    assert np.argwhere(moved).tolist() == [[2, 0, 1]]
    same(after["mlp_in"][:, :2], before["mlp_in"][:, :2])
