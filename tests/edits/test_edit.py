"""What a constructor refuses, without a model, and how it labels what it makes."""

from __future__ import annotations

import numpy as np
import pytest

import sinkjax
from sinkjax import SinkjaxError, Site, add_logit, compose, edit, mask_key, per_prompt, scale_head_output, set_residual

REFUSED = {
    "unknown site 'RESD' .*did you mean 'RESID'": lambda: edit("resd", "add", 1.0),
    "unknown site .*did you mean 'LOGITS'": lambda: edit("logit", "add", 1.0),
    "unknown operation at RESID 'ad'.*did you mean 'add'.*allowed: add, scale, set": lambda: edit("resid", "ad", 1.0),
    "unknown operation at WEIGHTS 'add'.*allowed: scale, set": lambda: edit("weights", "add", 1.0),
    "unknown relation 'other'.*did you mean 'others'": lambda: edit("logits", "add", 1.0, relation="other"),
    "unknown centre 'dim'.*did you mean 'dims'": lambda: scale_head_output(0, 2.0, centre="dim"),
    "layer -1 is negative": lambda: mask_key(0, layers=-1),
    "head -2 is negative": lambda: mask_key(0, heads=[0, -2]),
    "key -1 is negative": lambda: mask_key(-1),
    "query -3 is negative": lambda: edit("resid", "add", 1.0, queries=slice(-3, None)),
    "dim -1 is negative": lambda: set_residual(0, 1.0, dims=[-1]),
    "empty layer selector": lambda: mask_key(0, layers=[]),
    "layer slice .*at least 1": lambda: mask_key(0, layers=slice(0, 2, 0)),
    "key selector .*int, .* 1.5": lambda: mask_key(1.5),
    "layer selector .*int, .* True": lambda: mask_key(0, layers=True),
    "layer selector .*int, .* 'all'": lambda: mask_key(0, layers="all"),
    "layer selector .*different lengths": lambda: mask_key(0, layers=[[0], [1, 2]]),
    "per_prompt .*positions, .*layer": lambda: mask_key(0, layers=per_prompt([1])),
    "per_prompt .*one entry": lambda: per_prompt([]),
    "^heads .*RESID": lambda: edit("resid", "add", 1.0, heads=0),
    "^heads .*KEY .*use kv_heads": lambda: edit("key", "add", 1.0, heads=0),
    "kv_heads .*QUERY .*use heads": lambda: edit("query", "add", 1.0, kv_heads=0),
    "queries .*VALUE .*use keys": lambda: edit("value", "add", 1.0, queries=0),
    "keys .*RESID .*use queries": lambda: edit("resid", "add", 1.0, keys=0),
    "dims .*LOGITS": lambda: edit("logits", "add", 1.0, dims=0),
    "layers .*EMBED": lambda: edit("embed", "add", 1.0, layers=0),
    "distances .*RESID": lambda: edit("resid", "add", 1.0, distances=[1]),
    "relation .*RESID": lambda: edit("resid", "add", 1.0, relation="self"),
    "renormalise .*LOGITS": lambda: edit("logits", "add", 1.0, renormalise=True),
    "centre .*HEAD_OUT .*'set'": lambda: edit("head_out", "set", 1.0, centre="dims"),
    "queries .*EMBED .*'swap'": lambda: edit("embed", "swap", (0, 1), queries=0),
    "swap_embeddings takes int positions": lambda: sinkjax.swap_embeddings(0.5, 1),
    "one position per prompt .*3 and 2": lambda: sinkjax.swap_embeddings([0, 1, 2], [1, 2]),
    "set_positions .*query=, key=": lambda: sinkjax.set_positions(),
    "not an edit: 'mask'": lambda: compose(mask_key(0), "mask"),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refusals(message: str) -> None:
    with pytest.raises(SinkjaxError, match=message) as refused:
        REFUSED[message]()
    assert "\n" not in str(refused.value)


def test_a_site_may_be_named_in_either_case() -> None:
    assert edit("RESID", "add", 1.0) == edit(Site.RESID, "add", 1.0) == edit("resid", "add", 1.0)


def test_labels_say_what_is_done() -> None:
    assert mask_key(0).label == "mask_key(key=0)"
    assert mask_key([1, 2], layers=slice(0, 3), heads=4).label == "mask_key(key=[1,2], layers=0:3, heads=4)"
    assert add_logit(0, -0.25).label == "add_logit(key=0, value=-0.25)"
    assert "per prompt" in mask_key(per_prompt([0, 1])).label
    assert compose(mask_key(0), add_logit(1, 2.0)).label == "mask_key(key=0) + add_logit(key=1, value=2)"
    assert mask_key(0).named("no sink").label == "no sink"
    assert len(set_residual(0, np.zeros(500)).label) < 60


def test_composition_is_associative() -> None:
    a, b, c = mask_key(0), add_logit(1, 2.0), mask_key(2, layers=1)
    assert compose(compose(a, b), c).terms == compose(a, compose(b, c)).terms == a.terms + b.terms + c.terms
