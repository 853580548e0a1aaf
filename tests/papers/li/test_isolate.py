"""li/isolate: its edits and its score."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import sinkjax
from sinkjax.papers.li import isolate
from sinkjax.papers.li._scores import later_sink_score, sink_score
from sinkjax.studies.as_yaml import from_yaml, to_yaml
from sinkjax.studies.readouts import probe_of, read_measure
from sinkjax.studies.registry import as_value
from sinkjax.studies.scope import Scope
from sinkjax.studies.settings import config_type
from tests.studies.tiny import LAYERS, write_both

CONFIG = config_type(isolate.STUDY)(position=4, keys=(0, 3), ends=(1,), length=12)
SCOPE = Scope(CONFIG, SimpleNamespace(layers=3, heads=2), {"forms": 1})


def edits(grid: str) -> dict[str, sinkjax.Edit]:
    return {point.label: point.edit for point in SCOPE.get(dict(isolate.STUDY.grids)[grid])}


def same(one: sinkjax.Edit, other: sinkjax.Edit) -> bool:
    """Whether two edits have the same terms; each has one."""
    (a,), (b,) = one.terms, other.terms
    return a.replace(value=None) == b.replace(value=None) and np.array_equal(a.value, b.value)


def test_the_edits_are_those_of_the_constructors():
    alone, other, even = map(edits, ("alone", "other", "even"))
    assert same(alone["all layers"], sinkjax.attend_self(4))
    assert same(alone["layer 1"], sinkjax.attend_self(4, layers=1))
    assert same(alone["layers 0 to the one in which it forms"], sinkjax.attend_self(4, layers=(0, 1)))
    assert same(alone["layers after the one in which it forms"], sinkjax.attend_self(4, layers=(2,)))
    hidden = sinkjax.edit("logits", "set", -np.inf, queries=4, keys=[0, 1, 2, 4])
    assert same(other["seen 3 in all layers"], hidden)
    assert same(even["layers 0 to 1"], sinkjax.edit("logits", "set", 0.0, queries=4, layers=(0, 1)))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory):
    return sinkjax.load(str(write_both(tmp_path_factory.mktemp("tiny")) / "model"))


def test_scores_are_means_of_the_attention_maps(model):
    tokens = np.random.default_rng(0).integers(1, model.config.vocab_size, (2, 9)).astype(np.int32)
    measures = [sink_score(4), later_sink_score(4)]
    alone, probe = sinkjax.attend_self(4), sinkjax.Probe(attention=tuple(range(LAYERS)))
    data = sinkjax.sweep(model, tokens, [alone], probe=probe_of(measures, SCOPE), progress=False)
    maps = sinkjax.forward(model.params, tokens, model.config, edits=(alone,), probe=probe).record["attention"]
    column = np.asarray(maps)[..., 4]  # [prompt, layer, head, query]
    np.testing.assert_allclose(column[..., 4], 1, rtol=1e-6)  # its own query sees nothing else
    for measure, first in zip(measures, (4, 5), strict=True):
        expected = 100 * column[..., first:].mean(axis=(1, 2, 3))
        np.testing.assert_allclose(read_measure(measure, SCOPE, data)[0], expected, rtol=1e-4)


def test_yaml_keeps_it():
    value = as_value("li/isolate")
    assert from_yaml(to_yaml(value)) == value
    assert all(claim.statement for claim in value.claims.values())
