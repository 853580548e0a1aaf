"""li/isolate: its edits and its score."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sinkjax
from sinkjax.papers.li._scores import later_sink_score, sink_score
from sinkjax.study.edits import hide_behind
from sinkjax.study.measures import merged, read_measure
from sinkjax.study.registry import program
from tests.study.budget import Conditions
from tests.study.tiny import LAYERS, write_both


def test_the_edits_are_those_of_the_constructors(tiny_config):
    study = Conditions(program("li/isolate"), tiny_config, {"forms": 1}, position=4, keys=(0, 3), ends=(1,), length=12)
    hidden = sinkjax.edit("logits", "set", -np.inf, queries=4, keys=[0, 1, 2, 4])
    expected: dict[str, dict[str, Any]] = {
        "alone": {
            "all layers": sinkjax.attend_self(4),
            "layer 1": sinkjax.attend_self(4, layers=1),
            "layers 0 to the one in which it forms": sinkjax.attend_self(4, layers=(0, 1)),
            "layers after the one in which it forms": sinkjax.attend_self(4, layers=(2,)),
        },
        "other": {"seen 3 in all layers": hidden},
        "without-0": {
            "isolated yes": sinkjax.compose(sinkjax.attend_self(4), hide_behind(0, 4)),
            "isolated no": sinkjax.edit("logits", "set", -np.inf, keys=0, queries=slice(5, None)),
        },
        "even": {"layers 0 to 1": sinkjax.edit("logits", "set", 0.0, queries=4, layers=(0, 1))},
    }
    for sweep, edits in expected.items():
        for label, edit in edits.items():
            study.assert_same(study.of(sweep)[label].edit, edit)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory):
    return sinkjax.load(str(write_both(tmp_path_factory.mktemp("tiny")) / "model"))


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
