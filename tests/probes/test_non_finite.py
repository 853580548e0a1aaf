"""What overflows is counted, and no statistic skips it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sinkjax
from sinkjax import Capture, Probe, SinkjaxError, Site
from sinkjax.probes.statistics import BUILT_IN, abs_argmax, abs_max, abs_median, row_entropy, share_above

T = 6
ALL = Probe(**dict.fromkeys([*BUILT_IN, "nll"], True))


@pytest.fixture
def tokens() -> np.ndarray:
    return np.arange(2 * T).reshape(2, T)


@pytest.fixture
def run(tiny_params, tiny_config, tokens):
    def run(*edits, probe=ALL, dtype="float32", **options):
        params = jax.tree.map(lambda leaf: leaf.astype(dtype), tiny_params)
        return sinkjax.forward(params, tokens, tiny_config, edits, probe, **options)

    return run


def test_overflow_is_counted_by_prompt_and_depth(run, tiny_config) -> None:
    far = sinkjax.edit(Site.RESID, "scale", [[1e30], [1.0]], layers=1, queries=2, dims=3)
    counts = np.asarray(run(far, dtype="float16").record["non_finite"])
    assert counts[0, :2].tolist() == [0, 0]  # the embedding, and block 0
    assert counts[0, 2] == 1
    assert (counts[0, 3:] == T).all()  # a weight of 0 times what is infinite is NaN at earlier positions too
    assert not counts[1].any()  # the other prompt, whose factor is 1


def test_what_lies_beyond_a_prompt_is_not_counted(tiny_params, tiny_config) -> None:
    params = jax.tree.map(lambda leaf: leaf.astype("float16"), tiny_params)
    tokens = np.zeros((1, T), int)
    tokens[0, 4:] = 1
    params["embed"] = params["embed"].at[1].set(np.inf)
    counts = [sinkjax.forward(params, tokens, tiny_config, probe=ALL, lengths=[length]).record["non_finite"] for length in (4, T)]
    assert counts[0][0, 0] == 0
    assert counts[1][0, 0] == 2


@pytest.mark.parametrize("probe", [Probe(nll=True), Probe(attention=(0,)), Probe(capture=(Capture(Site.EMBED),))])
def test_any_request_brings_the_count(run, probe) -> None:
    assert "non_finite" in run(probe=probe).record


def test_no_statistic_skips_what_is_not_a_number(run) -> None:
    broken = sinkjax.edit(Site.RESID, "scale", 1e30, layers=0, queries=0)
    record = run(broken, dtype="float16").record
    for name in ("resid_max", "resid_norm", "resid_median"):
        assert not np.isfinite(np.asarray(record[name])[:, 2:, 1:]).any(), name
    for name in ("attention_received", "row_entropy"):
        assert np.isnan(np.asarray(record[name])[:, 2:]).any(), name


@pytest.mark.parametrize("jit", [True, False])
def test_reductions_propagate(jit) -> None:
    x = jnp.asarray([[[1.0, -4.0, np.nan], [np.nan] * 3, [2.0, -np.inf, 1.0], [1.0, -3.0, 2.0]]])
    of = (lambda fn: jax.jit(fn, static_argnums=1)) if jit else (lambda fn: fn)
    np.testing.assert_array_equal(of(abs_max)(x, None)[0], [np.nan, np.nan, np.nan, 3.0])
    np.testing.assert_array_equal(of(abs_median)(x, None)[0], [np.nan, np.nan, np.nan, 2.0])
    np.testing.assert_array_equal(of(abs_argmax)(x, None)[0], [2, 0, 1, 1])
    np.testing.assert_array_equal(np.isnan(of(row_entropy)(jnp.asarray([[0.5, np.nan], [0.5, 0.5]]), None)), [True, False])
    sums = jnp.asarray([[[np.nan, 5.0]], [[5.0, 5.0]]])
    shares = share_above(sums, jnp.asarray([4, 4]), eps=0.3)
    np.testing.assert_array_equal(shares, [[np.nan, 1.0], [1.0, 1.0]])


@pytest.mark.parametrize("op", ["set", "add"])
def test_a_value_beyond_the_dtype_is_refused(run, op) -> None:
    far = sinkjax.edit(Site.RESID, op, 70000.0, layers=0)
    run(far)  # float32 holds it
    with pytest.raises(SinkjaxError, match=r"70000 .*RESID .*float16, .*65504"):
        run(far, dtype="float16")
