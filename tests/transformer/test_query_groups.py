"""Groups of queries, each with the keys that one of them can see, give the numbers of all queries with all keys."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sinkjax
from sinkjax import Capture, Probe, Site, Statistic, attend_self, compose, edit, mask_key, per_prompt
from sinkjax.model.attention_bias import SinkToken
from sinkjax.model.normalisers import NAMED
from sinkjax.model.positions import Alibi, Learned
from sinkjax.probes.statistics import PairView
from sinkjax.transformer import attention
from sinkjax.transformer.forward import run
from sinkjax.transformer.spec import ForwardSpec
from tests.model.variants import draw

T = 43  # ten blocks of four queries and one of three
TOKENS = np.random.default_rng(2).integers(0, 61, (2, T))
LENGTHS = np.array([T, 41])


def last_keys(weights: jax.Array, view: PairView) -> jax.Array:
    """By number, as somebody may who wants to see some keys."""
    return jnp.where(view.real_rows, weights[..., 40:], 0).sum(axis=(2, 3))


def hidden_queries(scores: jax.Array, view: PairView) -> jax.Array:
    return (~view.visible & view.real_rows).sum(axis=2) + 0 * scores[:, :, 0]


LAST_KEYS = Statistic("last_keys", Site.WEIGHTS, last_keys, ("prompt", "layer", "head"))
HIDDEN = Statistic("hidden", Site.LOGITS, hidden_queries, ("prompt", "layer", "head", "key"))
SUMS = ("attention_received", "attention_share", "attention_received_bias", "attention_share_bias")
EVERYTHING = dataclasses.replace(
    Probe.of(*SUMS, "row_entropy", "query_key_cosine", "resid_norm", "nll"),
    attention=True,
    capture=(
        Capture(Site.LOGITS, layers=(1,), positions=(0, 7, 8, 42), dims=(41, 0, 9), name="some"),
        Capture(Site.LOGITS),
        Capture(Site.HEAD_OUT),
    ),
    extra=(LAST_KEYS, HIDDEN),
)
EDITS = compose(
    mask_key(per_prompt([1, 25]), layers=1, heads=[0, 4]),
    attend_self([2, 29], layers=1),
    edit("logits", "add", 0.4, distances=[0, 17]),
    edit("logits", "set", -0.3, queries=slice(9, 41), keys=[8, 39]),
    edit("weights", "scale", 0.5, keys=[3, 26], queries=slice(10, 29), renormalise=True),
    edit("weights", "set", 0.2, keys=[0, 27], layers=0),
)


@pytest.fixture(scope="module", autouse=True)
def x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def config(tiny_config):
    return replace(tiny_config, layers=2, mlp_width=None)


@pytest.fixture
def both(monkeypatch):
    """What a function of no arguments gives with groups, and what it gives without, after a look at how many there are."""

    def found(function) -> tuple[Any, Any]:
        results = []
        for start in (0, T + 1):
            monkeypatch.setattr(attention, "GROUPED_TILE", 4)
            monkeypatch.setattr(attention, "MOST_GROUPS", 2)  # each is compiled
            monkeypatch.setattr(attention, "GROUPED_FROM", start)
            assert len(attention.query_groups(T)) == (1 if start else 2)
            jax.clear_caches()
            results.append(function())
        jax.clear_caches()
        return results[0], results[1]

    return found


def close(grouped: Any, whole: Any) -> None:
    assert jax.tree.structure(grouped) == jax.tree.structure(whole)
    for (path, one), other in zip(jax.tree_util.tree_leaves_with_path(grouped), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12, err_msg=jax.tree_util.keystr(path))


@pytest.mark.parametrize(
    "changes",
    [
        {"windows": (None, 9), "kv_bias": SinkToken()},
        {"position": Learned(), "windows": (5, 12), "prefix": 3, "normaliser": NAMED["sink-logit"]},
    ],
    ids=str,
)
def test_everything_that_is_measured(config, both, changes: dict) -> None:
    """Logits, statistics, captures and counts, edited at LOGITS and WEIGHTS, of prompts of two lengths."""
    config = replace(config, **changes)
    params = draw(config)
    grouped, whole = both(lambda: sinkjax.forward(params, TOKENS, config, EDITS, EVERYTHING, LENGTHS))
    close((grouped.logits, grouped.record), (whole.logits, whole.record))
    assert (np.asarray(whole.record["cells_changed"]).sum(axis=0) > 0).all()
    assert np.abs(np.nan_to_num(whole.record["last_keys"])).max() > 0


def bare_run(config, normaliser, probe: Probe):
    """A function of the parameters of one layer of attention alone that runs it; and those."""
    config = replace(config, layers=1, position=Alibi(), prefix=31, normaliser=normaliser)
    spec = ForwardSpec(config=config, probe=probe, logits=True)
    return lambda params: run(params, jnp.asarray(TOKENS), jnp.asarray(LENGTHS), (), spec=spec), draw(config)


def test_all_normalisers(config, both) -> None:
    """In one program, which is compiled faster than one for each."""
    runs, params = zip(*(bare_run(config, entry, Probe(attention_received=True)) for entry in NAMED.values()), strict=True)
    close(*both(lambda: jax.jit(lambda params: [run(p) for run, p in zip(runs, params, strict=True)])(params)))


def test_gradients(config, both) -> None:
    run, params = bare_run(config, NAMED["sink-logit"], Probe())
    gradient = jax.jit(jax.grad(lambda params: (run(params).logits ** 2).mean()))
    close(*both(lambda: gradient(params)))
