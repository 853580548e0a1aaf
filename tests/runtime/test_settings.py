"""Settings of JAX, from a program or its environment, neither stop a computation nor change its numbers."""

import os
import subprocess
import sys

import jax
import numpy as np
import pytest

import sinkjax

TEXT = "They sent for Ness at half past two to bring the doctor over."
DRAWS = """
import jax, sinkjax
from sinkjax.model.params import init
from sinkjax.train.step import key
model = sinkjax.load("untrained:mini-softmax")
print(model.source["sha256"], sinkjax.generate(model, [1, 2], (), 4, 1.0, 3), end=" ")
print(*(float(jax.random.normal(key(0, "x", kind))) for kind in ("threefry", "hash")), end=" ")
print(float(sum(abs(leaf).sum() for leaf in jax.tree.leaves(init(model.config, 7)))))
"""


def draws(**settings: str) -> str:
    command = [sys.executable, "-c", DRAWS]
    return subprocess.run(command, env=os.environ | settings, check=True, capture_output=True, text=True).stdout


def test_draws_do_not_depend_on_the_default_generator():
    assert draws() == draws(JAX_DEFAULT_PRNG_IMPL="rbg") != ""


def first(record):
    return record["attention_received"][..., 0].mean((1, 2))


PROBE, EDITS = sinkjax.Probe(resid_max=True, nll=True), [sinkjax.drop_mlp(0), sinkjax.mask_key(0)]
CALLS = {
    "load": lambda model, text, lengths: sinkjax.load("untrained:mini-softmax").params,
    "forward": lambda model, text, lengths: sinkjax.forward(model, text, edits=EDITS[1], probe=PROBE, lengths=lengths).record,
    "sweep": lambda model, text, lengths: sinkjax.sweep(model, text, EDITS, lengths=lengths).attention_received.values,
    "evaluate": lambda model, *_: sinkjax.evaluate(model, TEXT, weights=8, activations=8, keep="sinks").nll,
    "H2O": lambda model, *_: sinkjax.evaluate(model, TEXT, cache=sinkjax.H2O(4)).nll,
    "generate": lambda model, *_: sinkjax.generate(model, [3, 4], EDITS[1], 3, 1.0),
    "scan": lambda model, *_: sinkjax.scan(model, range(50)).score.values,
    "attribute": lambda model, text, lengths: sinkjax.attribute(model, text, first, lengths=lengths, exact=1).exact.values,
}
STRICT = [jax.debug_nans(True), jax.debug_infs(True), jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise")]


@pytest.mark.parametrize("name", CALLS)
def test_strict_settings_change_nothing(name):
    model = sinkjax.load("mini-softmax")
    batch = sinkjax.encode(model, [TEXT, "a short one"], length=32)
    want = jax.device_get(CALLS[name](model, *batch))
    for setting in STRICT:
        with setting:
            jax.tree.map(np.testing.assert_array_equal, jax.device_get(CALLS[name](model, *batch)), want)
