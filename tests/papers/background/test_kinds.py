"""background/kinds: what each edit does to heads of a kind by hand, and a run on a tiny model."""

from __future__ import annotations

import numpy as np
import pytest

import sinkjax
from sinkjax.papers.background import kinds as own

L, H, K, T, LENGTHS = 3, 6, 2, 12, np.array([12, 9])


@pytest.fixture
def sinks() -> own.Heads:
    """The sinks of two prompts: one no-op head, in the first prompt alone, and one head that broadcasts in both."""
    kinds = np.full((2, L, H), "", "<U9")
    kinds[0, 1, 2], kinds[:, 2, 5] = "no-op", "broadcast"
    values = np.random.default_rng(0).standard_normal((2, L, T, K, 8)).astype(np.float32)
    return own.Heads(kinds, values, LENGTHS)


@pytest.fixture
def taken(tiny_config, tiny_params, sinks):
    """Weights, values and head outputs of a model, without an edit and with a way for a kind."""
    config, tokens = tiny_config, np.random.default_rng(1).integers(1, 50, (2, T))
    model = sinkjax.Model(config, tiny_params, None, {})
    names = ("value", "head_value", "head_out")
    probe = sinkjax.Probe(attention=True, capture=tuple(sinkjax.Capture(name, name=f"at_{name}") for name in names))

    def run_both(way, kind, key=0):
        plain = sinkjax.forward(model, tokens, probe=probe, lengths=LENGTHS).record
        edit = own.take(own.Heads(sinks.kinds, np.asarray(plain["at_value"]), LENGTHS), way, kind, key, seed=0)
        return plain, sinkjax.forward(model, tokens, edits=edit, probe=probe, lengths=LENGTHS).record, edit

    return run_both


@pytest.mark.parametrize("way", ["zero", "mean", "shuffled"])
def test_a_value_is_taken_from_the_heads_and_prompts_of_a_kind(taken, way):
    plain, edited, _ = taken(way, "no-op")
    before, after = (np.asarray(one["at_head_value"])[:, 1] for one in (plain, edited))
    moved = (before != after).any(axis=-1)  # prompt, position, head
    assert next(zip(*np.nonzero(moved), strict=True)) == (0, 0, 2)
    assert moved[0].sum() == 1
    others = before[0, 1:, 2]
    want = {"zero": np.zeros(others.shape[1:]), "mean": others.mean(axis=0)}
    if way == "shuffled":
        assert np.isclose(others, after[0, 0, 2], atol=1e-6).all(axis=1).any()
    else:
        np.testing.assert_allclose(after[0, 0, 2], want[way], atol=1e-6)
    both = np.asarray(taken(way, "broadcast")[1]["at_head_value"])[:, 2, 0, 5]
    assert (both != np.asarray(plain["at_head_value"])[:, 2, 0, 5]).all(axis=-1).tolist() == [True, True]
