"""Known numbers are measured on the unedited model, once for each model, prompts and probe of a run."""

from __future__ import annotations

import numpy as np
import pytest

import sinkjax
from sinkjax import Probe
from sinkjax.studies.known import Unedited
from sinkjax.studies.study import Batch


@pytest.fixture
def asked(monkeypatch):
    """Every sweep that is made: its model, number of prompts and probe."""
    calls, sweep = [], sinkjax.sweep

    def counted(model, tokens, edits, probe, **rest):
        calls.append((model, len(tokens), probe))
        return sweep(model, tokens, edits, probe=probe, **rest)

    monkeypatch.setattr(sinkjax, "sweep", counted)
    return calls


def test_equal_measurements_are_made_once(asked):
    model, twin = sinkjax.load("mini-sink"), sinkjax.load("untrained:mini-sink")
    tokens = np.random.default_rng(0).integers(0, model.config.vocab_size, (3, 12)).astype(np.int32)
    batch = Batch(tokens, np.full(3, 12, np.int32), {})
    received, largest = Probe(attention_received=True), Probe(resid_max=True)
    first = Unedited(model, batch, prompts=2).data(received)
    assert Unedited(model, batch, prompts=2).data(Probe(attention_received=True)).identical(first)
    assert len(asked) == 1
    for run, probe in (
        (Unedited(model, batch, prompts=2), largest),
        (Unedited(model, batch, prompts=3), received),
        (Unedited(twin, batch, prompts=2), received),
    ):
        other = run.data(probe)
        assert asked[-1] == (run.model, run.prompts, probe)
        assert not other.equals(first)
    masked = Unedited(model, batch, prompts=2).data(received, sinkjax.mask_key(0))
    assert len(asked) == 5
    assert not masked["attention_received"].equals(first["attention_received"])
    assert Unedited(model, batch, prompts=2).data(received).identical(first)
    assert len(asked) == 5
