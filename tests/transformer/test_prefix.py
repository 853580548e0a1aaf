"""A prefix whose positions see each other both ways: forward, edits, statistics and what is beyond a prompt's end."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest

import sinkjax
from sinkjax import Probe, SinkjaxError
from tests.model.variants import draw

TOKENS = np.random.default_rng(0).integers(61, size=(2, 13))
LENGTHS = (13, 3)  # the second prompt ends within the prefix
PREFIX = 5
BOTH = (13, 13)
NOTHING = Probe()


@pytest.fixture(scope="module")
def config(tiny_config):
    return replace(tiny_config, prefix=PREFIX, layers=2)


def run(config, edits=(), probe=NOTHING, tokens=TOKENS, lengths=LENGTHS):
    with jax.enable_x64(True):
        return sinkjax.forward(draw(config), tokens, config, edits, probe, np.array(lengths))


def test_what_a_prefix_changes_and_what_not(config) -> None:
    later = TOKENS.copy()
    later[:, PREFIX:] = (later[:, PREFIX:] + 1) % 61  # beyond the prefix, and beyond the end of the short prompt
    np.testing.assert_array_equal(run(config).logits[0, :PREFIX], run(config, tokens=later).logits[0, :PREFIX])
    np.testing.assert_array_equal(run(config).logits[1, :3], run(config, tokens=later).logits[1, :3])
    within = TOKENS.copy()
    within[0, PREFIX - 1] += 1
    assert (run(config).logits[0, 0] != run(config, tokens=within).logits[0, 0]).all()
    alone = replace(config, prefix=1)  # the first token sees itself in any case
    np.testing.assert_array_equal(run(alone).logits, run(replace(config, prefix=None)).logits)


def test_the_statistics_keep_their_meaning(config) -> None:
    """Means over queries at or after a key, of rows that sum to 1; no loss of tokens that are seen."""
    record = run(config, probe=Probe(attention=(0, 1), attention_received=True, attention_share=True, nll=True)).record
    maps = np.asarray(record["attention"])[0]
    np.testing.assert_allclose(maps.sum(axis=-1), 1, rtol=1e-12)
    assert (maps[:, :, :PREFIX, :PREFIX] > 0).all()
    assert not np.triu(maps[:, :, PREFIX:, PREFIX:], 1).any()
    for key in range(13):
        np.testing.assert_allclose(record["attention_received"][0, :, :, key], maps[:, :, key:, key].mean(axis=-1), rtol=1e-9)
    np.testing.assert_allclose(record["attention_share"][0], record["attention_received"][0], rtol=1e-6)
    assert np.isnan(record["nll"][1]).all()
    np.testing.assert_array_equal(np.isnan(record["nll"][0]), [*[True] * (PREFIX - 1), *[False] * 8, True])


def test_edits_act_on_keys_that_are_ahead(config) -> None:
    probe = Probe(attention=(0, 1))
    masked = np.asarray(run(config, sinkjax.mask_key(2), probe).record["attention"])
    assert not np.delete(masked[0, :, :, :, 2], 2, axis=2).any()
    assert not np.nan_to_num(np.delete(masked[1, :, :, :3, 2], 2, axis=2)).any()
    alone = np.asarray(run(config, sinkjax.attend_self(1), probe).record["attention"])
    np.testing.assert_allclose(alone[0, :, :, 1], np.broadcast_to(np.eye(13)[1], (2, 6, 13)), rtol=1e-12)
    ahead = run(config, sinkjax.edit("logits", "add", 1.0, queries=0, keys=4), lengths=BOTH).record  # not there causally
    np.testing.assert_array_equal(ahead["cells_addressed"], [[12], [12]])
    with pytest.raises(SinkjaxError, match="no causally visible cell"):
        run(config, sinkjax.edit("logits", "add", 1.0, queries=0, keys=5), lengths=BOTH)


def test_windows_and_masks_of_whole_rows_know_the_prefix(config) -> None:
    config = replace(config, windows=(2, 2))
    far = sinkjax.edit("logits", "add", 1.0, queries=10, keys=4)
    assert run(config, far, lengths=BOTH).record["cells_addressed"].tolist() == [[12], [12]]
    with pytest.raises(SinkjaxError, match="no causally visible cell"):
        run(config, sinkjax.edit("logits", "add", 1.0, queries=10, keys=5), lengths=BOTH)
    run(config, sinkjax.edit("logits", "set", -np.inf, queries=0, keys=0), lengths=BOTH)  # query 0 sees four more
    with pytest.raises(SinkjaxError, match=r"query 0 .prompt 1"):
        run(config, sinkjax.edit("logits", "set", -np.inf, queries=0, keys=0), lengths=(13, 1))
