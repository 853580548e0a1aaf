"""li/variance: variances, their decay and the rank correlation are those of their definitions."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import xarray
from scipy.stats import kendalltau

import sinkjax
from sinkjax.model.params import init
from sinkjax.papers.li import variance
from sinkjax.papers.li.variance import EVEN, MODEL, measure
from sinkjax.study.contrasts import Parts
from sinkjax.study.numbers import Numbers
from sinkjax.study.registry import find
from sinkjax.study.work import Batch

T = 16
STUDY = find("li/variance")
CONFIG = STUDY.settings(length=T, permutations=20)


def random_tokens(model, prompts: int) -> Batch:
    tokens = np.random.default_rng(0).integers(1, model.config.vocab_size, (prompts, T)).astype(np.int32)
    return Batch(tokens, np.full(prompts, T, np.int32), {})


def decaying(power: float, heads: int = 4) -> Numbers:
    """Deviations that fall with (i + 1) to a power; a dim's deviation rises with its row of W_O."""
    rng = np.random.default_rng(1)
    deviation = rng.exponential(size=(20, heads, 1)) * np.arange(1.0, T + 1) ** power
    rows = rng.random((heads, 12))
    arrays: dict[str, Any] = {
        "deviation": (("prompt", "head", "position"), deviation),
        "after": (("prompt", "position"), deviation.mean(1)),
        "squared_weights": (("head", "position"), np.full((heads, T), 0.5)),
        "by_dim": (("prompt", "head", "head_dim"), np.stack([rows**2] * 20)),
    }
    both: dict[str, Any] = {name: (("attention", *axes), np.stack([values] * 2)) for name, (axes, values) in arrays.items()}
    data = xarray.Dataset(both | {"row_norm": (("head", "head_dim"), rows)}, {"attention": [MODEL, EVEN]})
    return Numbers(CONFIG, SimpleNamespace(layers=2, kv_heads=2), {"variance": data})  # type: ignore[arg-type]


def parts(name: str, read: Numbers) -> Parts:
    """What a claim computes."""
    of: Any = STUDY.trace(CONFIG, read.architecture).claims[name].of
    found: Parts = of(read)
    return found


def test_deviations_are_those_of_the_whole_model(model):
    batch = random_tokens(model, 40)  # more than one block
    probe = sinkjax.Probe(capture=(sinkjax.Capture("head_out", layers=(0,)), sinkjax.Capture("attn_out", layers=(0,))))
    record = sinkjax.forward(model.params, batch.tokens, model.config, probe=probe).record
    data = measure(model, batch)
    by_dim = np.var(record["head_out"][:, 0], axis=0, ddof=1)  # [position, head, dim]
    np.testing.assert_allclose(data["deviation"][0].mean("prompt"), by_dim.mean(-1).T, rtol=1e-4)
    np.testing.assert_allclose(data["by_dim"][0].mean("prompt"), by_dim.mean(0), rtol=1e-4)
    np.testing.assert_allclose(
        data["after"][0].mean("prompt"), np.var(record["attn_out"][:, 0], axis=0, ddof=1).mean(-1), rtol=1e-4
    )
    np.testing.assert_allclose(data["row_norm"], np.linalg.norm(model.params["layers"]["o"][0], axis=-1), rtol=1e-6)


def test_norms_on_outputs_are_left_out(model):
    config = dataclasses.replace(model.config, norm_place="sandwich")
    normed = dataclasses.replace(model, config=config, params=init(config, 0))
    batch, probe = random_tokens(normed, 5), sinkjax.Probe(capture=(sinkjax.Capture("head_out", layers=(0,)),))
    heads = sinkjax.forward(normed, batch.tokens, probe=probe).record["head_out"][:, 0]
    after = np.einsum("bthd,hdn->btn", heads, normed.params["layers"]["o"][0])
    found = measure(normed, batch)["after"][0].mean("prompt")
    np.testing.assert_allclose(found, np.var(after, axis=0, ddof=1).mean(-1), rtol=1e-4)


@pytest.mark.parametrize("power", [-1.0, -0.5, 1.0])
def test_contrasts_find_the_power_of_the_decay(power):
    read = decaying(power)
    np.testing.assert_allclose(parts("decays", read).contrast.mean(), -power, rtol=1e-6)
    expected = -power * np.log(np.arange(2, T + 1)).mean()
    np.testing.assert_allclose(parts("first", read).contrast.mean(), expected, rtol=1e-6)
    np.testing.assert_allclose(parts("after", read).contrast.mean(), expected, rtol=1e-6)


def test_tau_is_that_of_scipy():
    rng = np.random.default_rng(3)
    std, rows = rng.random((2, 3, 10)), rng.integers(0, 5, (4, 3, 10)).astype(float)  # with ties
    expected = [[np.mean([kendalltau(s, r).statistic for s, r in zip(one, row, strict=True)]) for one in std] for row in rows]
    np.testing.assert_allclose(variance.taus(std, rows), expected, atol=1e-7)
