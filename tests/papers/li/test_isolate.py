"""li/isolate: its edits and its score."""

from __future__ import annotations

import numpy as np

import sinkjax
from sinkjax.papers._shared import after
from sinkjax.papers.li.amplify import sink_score
from sinkjax.papers.li.isolate import later_sink_score
from sinkjax.study.measures import merged, read_measure
from tests.study.tiny import LAYERS


def test_scores_are_means_of_the_attention_maps(model):
    tokens = np.random.default_rng(0).integers(1, model.config.vocab_size, (2, 9)).astype(np.int32)
    measures = [sink_score(4), later_sink_score(4)]
    alone, probe = sinkjax.attend_self(4), sinkjax.Probe(attention=tuple(range(LAYERS)))
    data = sinkjax.sweep(model, tokens, [alone], probe=merged(measures[0].asks, measures[1].asks), progress=False)
    maps = sinkjax.forward(model.params, tokens, model.config, edits=(alone,), probe=probe).record["attention"]
    column = np.asarray(maps)[..., 4]  # [prompt, layer, head, query]
    np.testing.assert_allclose(column[..., 4], 1, rtol=1e-6)  # its own query sees nothing else
    for measure, first in zip(measures, (4, 5), strict=True):
        expected = 100 * column[..., first:].mean(axis=(1, 2, 3))
        np.testing.assert_allclose(read_measure(measure, data)[0], expected, rtol=1e-4)


def test_the_layers_after_one_begin_with_the_next_or_are_the_last_layer():
    assert [after(last, 4, "it").layers for last in (1, 3)] == [(2, 3), (3,)]
