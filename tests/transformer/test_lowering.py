"""What forward, a sweep and a training step compute can be lowered for GPUs and TPUs; it is run on a CPU."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import sinkjax
from sinkjax import Probe, attend_self, mask_key
from sinkjax.sweeps import computation
from sinkjax.tasks import train
from sinkjax.train import run_parallel
from tests.train import linear

TOKENS = np.arange(12).reshape(2, 6)
PROBE = Probe(attention_received=True, resid_norm=True, nll=True)
PLATFORMS = ("cuda", "tpu")


def watch(monkeypatch, module, name, programs):
    """Lower what a jitted function is called with, for each platform, beside the call."""
    jitted = getattr(module, name)

    def call(*given, **named):
        traced = jitted.trace(*given, **named)
        programs.extend(traced.lower(lowering_platforms=(platform,)).as_text() for platform in PLATFORMS)
        return jitted(*given, **named)

    monkeypatch.setattr(module, name, call)


@pytest.mark.parametrize("what", ["forward", "sweep", "training step"])
def test_it_is_lowered_for_other_platforms(what, monkeypatch, tmp_path):
    programs: list[str] = []
    model = sinkjax.load("untrained:mini-softmax")
    masks = [mask_key(0), attend_self(2)]
    if what == "forward":
        watch(monkeypatch, importlib.import_module("sinkjax.transformer.forward"), "run", programs)
        sinkjax.forward(model, TOKENS, edits=masks[1], probe=PROBE)
    elif what == "sweep":
        watch(monkeypatch, computation, "each", programs)
        sinkjax.sweep(model, TOKENS, masks, PROBE)
    else:
        linear.register()
        watch(monkeypatch, run_parallel, "_advance", programs)
        train(linear.Linear(seeds=1, steps=10, eval_every=10), tmp_path / "run", progress=False)
    assert len(programs) >= {"forward": 2, "sweep": 4, "training step": 2}[what]
    assert all("stablehlo.dot" in text or "stablehlo.multiply" in text for text in programs)
