"""Known numbers are measured on the unedited model, once for each model, prompts and probe of a run."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax import Probe
from sinkjax.analysis.estimates import Absent
from sinkjax.studies.known import Unedited, attention_by_head, onset, steepest
from sinkjax.studies.readouts import largest_activation
from sinkjax.studies.scope import Scope
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


@pytest.mark.parametrize(
    ("word", "expected"),
    [(onset(largest_activation(0)), 1), (steepest("resid_max", 0), 1), (attention_by_head(0), [0.5, 0.5])],
)
def test_a_prompt_that_overflowed_moves_no_known_number(word, expected):
    sizes = np.array([1.0, 1.0, 9.0])  # at each depth, of two layers
    broken = np.array([1.0, 1.0, np.inf])
    received = np.full((1, 2, 2, 1, 1), [[[[np.nan]]], [[[0.5]]]])
    data = xarray.Dataset(
        {
            "resid_max": (("edit", "prompt", "depth", "position"), np.stack([broken, sizes])[None, ..., None]),
            "attention_received": (("edit", "prompt", "layer", "head", "key"), received),
            "non_finite": (("edit", "prompt", "depth"), np.stack([~np.isfinite(broken), np.zeros(3, bool)])[None]),
        },
        {"key": [0]},
    )
    scope = Scope(SimpleNamespace(control_prompts=2), SimpleNamespace(layers=2, heads=1))
    assert np.array_equal(word.evaluate(scope, Unedited(None, None, data, 2)), expected)
    with pytest.raises(Absent, match="every prompt overflows, so nothing"):
        word.evaluate(scope, Unedited(None, None, data, 1))
