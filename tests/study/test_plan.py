"""Total memory of a study: its models, the runtime, and its widest part; its processor time by part."""

from __future__ import annotations

import pytest

import sinkjax
from sinkjax.study import plan
from sinkjax.study.plan import block_seconds
from sinkjax.study.registry import choose
from sinkjax.study.run import work
from sinkjax.study.work import Calculation


@pytest.fixture(scope="module")
def model():
    return sinkjax.load("mini-softmax")


def test_the_time_of_a_study_is_that_of_the_blocks_of_its_sweeps(model, monkeypatch):
    monkeypatch.setattr(plan, "block_rate", lambda *args: 1e9)
    parts = [(spec, planned) for spec, _, planned in work(choose("kiya/mask"), architecture=model.config)]
    assert any(isinstance(spec, Calculation) for spec, _ in parts)
    blocks = sum(planned.flops for _, planned in parts if planned)
    assert blocks > 0
    assert block_seconds(parts, model.config, "float32") == pytest.approx(blocks / 1e9)
