"""li/amplify: outputs are pushed away from the means of the model that is edited, and controls have the size of the push."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import sinkjax
from sinkjax.papers.li.amplify import EVERYWHERE, MEANS, NORM, PROMPTS, slope
from sinkjax.study import ALL, Sweep, loss
from sinkjax.study.lab import Lab, Unedited
from sinkjax.study.registry import find
from sinkjax.study.work import Batch

K, T = 4, 12
STUDY = find("li/amplify")
CONFIG = STUDY.settings(positions=(2, K), token=K, last=1, single=(0,), ends=(1,), length=T)


@pytest.fixture(scope="module")
def batch(model) -> Batch:
    """More prompts than one block, of which one is shorter."""
    tokens = np.random.default_rng(0).integers(1, model.config.vocab_size, (9, T)).astype(np.int32)
    return Batch(tokens, np.array([T] * 8 + [9], np.int32), {})


@pytest.fixture(scope="module")
def lab(model, batch) -> Lab:
    return STUDY.trace(CONFIG, model.config, unedited=Unedited(model, batch), prompts=9)


def outputs(model, batch, *edits: sinkjax.Edit) -> np.ndarray:
    """float[prompt, layer, position, head, dim]."""
    probe = sinkjax.Probe(capture=(sinkjax.Capture("head_out"),))
    run = sinkjax.forward(model.params, batch.tokens, model.config, edits=edits, probe=probe, lengths=batch.lengths)
    return np.asarray(run.record["head_out"])


@pytest.mark.parametrize("mean", MEANS)
def test_outputs_are_pushed_away_from_each_mean(model, batch, lab, mean):
    plain, s, factors = (
        outputs(model, batch)[:, 0, K],
        5.0,
        {point.label: point.edit for point in lab.sweeps["factors"].conditions()},
    )
    edited = outputs(model, batch, factors[f"mean {mean}, position {K}, factor 5 in layers 0 to 1"])[:, 0]
    earlier = outputs(model, batch)[:, 0, : K + 1]
    mu = {
        PROMPTS: plain.mean(0),
        EVERYWHERE: lab.donors["outputs"][0][EVERYWHERE][0, K],
        "over positions": earlier.mean(1),
        "over dims": plain.mean(-1, keepdims=True),
        NORM: 0.0,
    }[mean]
    np.testing.assert_allclose(edited[:, K], mu + s * (plain - mu), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(edited[:, :K], earlier[:, :K], atol=1e-6)


def test_a_control_is_as_large_as_the_push(model, batch, lab):
    seen, rng, sweep = outputs(model, batch), np.random.default_rng(0), lab.sweeps["factors"]
    case = next(case for case in sweep.edits if (case["position"], case["factor"]) == (K, 5.0))
    (term,) = sweep.control(rng, case).terms
    assert (term.site, term.op, term.queries, term.layers) == ("head_out", "add", (K,), (0, 1))
    own = seen[:, :, K]
    expected = 4 * np.linalg.norm(own - own.mean(0), axis=-1).swapaxes(0, 1)
    np.testing.assert_allclose(np.linalg.norm(term.value, axis=-1), expected, rtol=1e-4)
    (other,) = sweep.control(rng, case).terms
    assert not np.allclose(term.value, other.value)


def test_a_rise_is_a_line_for_each_position():
    doses = {ALL.at(position=p, factor=x): sinkjax.mask_key(0) for p in (2, 4) for x in (1.0, 2.0, 5.0)}
    planted = np.array([[7.0 * p + 3 * order for p in (2, 4) for order in range(3)]])
    parts = slope(loss(), Sweep("doses", doses).at(), "factor")(SimpleNamespace(edited=lambda measure, where: planted))
    np.testing.assert_allclose(parts.contrast, [[6.0, 6.0]])
