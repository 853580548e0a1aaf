"""Fused attention gives the numbers of the forward's own, and is refused where it cannot do what is asked."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import sinkjax
from sinkjax.errors import SinkjaxError
from sinkjax.model.normalisers import Sigmoid
from sinkjax.probes.probe import Probe


def test_fused_attention_gives_the_same_logits(tiny_config, tiny_params, rng):
    tokens, lengths = rng.integers(0, 61, (3, 20)), np.array([20, 7, 13])
    own = sinkjax.forward(tiny_params, tokens, tiny_config, probe=Probe(resid_norm=True), lengths=lengths)
    fused = sinkjax.forward(
        tiny_params, tokens, tiny_config, probe=Probe(resid_norm=True), lengths=lengths, attention_impl="fused"
    )
    for b, length in enumerate(lengths):
        np.testing.assert_allclose(fused.logits[b, :length], own.logits[b, :length], atol=2e-5)
    np.testing.assert_allclose(fused.record["resid_norm"], own.record["resid_norm"], rtol=1e-4)


@pytest.mark.parametrize(
    ("fields", "arguments", "what"),
    [
        ({}, {"edits": sinkjax.mask_key(0)}, "edits"),
        ({}, {"probe": Probe(attention_received=True)}, "the measurement of attention_received"),
        ({"normaliser": Sigmoid()}, {}, r"the normaliser Sigmoid\(shift=0.0\)"),
        ({"windows": (4, None, None)}, {}, "windows"),
        ({"prefix": 2}, {}, "a prefix"),
    ],
    ids=str,
)
def test_what_a_fused_operator_cannot_do_is_refused(fields, arguments, what, tiny_config, tiny_params):
    config = dataclasses.replace(tiny_config, **fields)
    with pytest.raises(SinkjaxError, match=f'attention_impl "fused" has no scores and weights, so it cannot do {what}'):
        sinkjax.forward(tiny_params, np.ones((1, 8), int), config, attention_impl="fused", **{"probe": Probe(), **arguments})
