"""Statistics against their definitions on full maps and raw values, and that measuring changes no number."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

import sinkjax
from sinkjax import Capture, Probe, SinkjaxError, Site, Statistic, compose, edit, mask_key, set_residual
from sinkjax.model.site import SITES
from sinkjax.probes.statistics import BUILT_IN, View, abs_argmax, abs_median, sinking_heads

LENGTHS = np.array([10, 7])
SITES_WITH_VALUES = tuple(site for site in Site if site not in (Site.POSITION, Site.POSITION_VECTOR, Site.ROUTER))
RAW = Probe(capture=tuple(Capture(site) for site in SITES_WITH_VALUES))


@pytest.fixture(scope="module")
def tokens() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 61, (2, 10))


@pytest.fixture(scope="module")
def run(tiny_params, tiny_config, tokens) -> Callable:
    def run(probe: Probe, edits=(), config=tiny_config) -> sinkjax.forward:
        return sinkjax.forward(tiny_params, tokens, config, edits, probe, LENGTHS)

    return run


@pytest.fixture(scope="module")
def raw(run) -> dict[str, np.ndarray]:
    """Raw values at every site, with a weight of zero among the attention weights."""
    return {name: np.asarray(array) for name, array in run(RAW, mask_key(1, layers=1)).record.items()}


@pytest.fixture(scope="module")
def measured(run) -> dict[str, np.ndarray]:
    probe = Probe.of("nll", *BUILT_IN)
    return {name: np.asarray(array) for name, array in run(probe, mask_key(1, layers=1)).record.items()}


def over_later_queries(b: int, matrix: np.ndarray) -> np.ndarray:
    """The definition: for each key, the mean over queries key <= i < length; NaN beyond the prompt."""
    n = LENGTHS[b]
    mean = np.full((*matrix.shape[:-2], 10), np.nan)
    for key in range(n):
        mean[..., key] = matrix[..., key:n, key].mean(axis=-1)
    return mean


@pytest.mark.parametrize("b", [0, 1])
def test_statistics_of_attention(raw, measured, b: int) -> None:
    weights = raw["weights"][b].astype(np.float64)
    np.testing.assert_allclose(measured["attention_received"][b], over_later_queries(b, weights), rtol=1e-5)
    share = np.abs(weights) / (np.nansum(np.abs(weights), axis=-1, keepdims=True) + 1e-8)
    np.testing.assert_allclose(measured["attention_share"][b], over_later_queries(b, share), rtol=1e-5)
    n = LENGTHS[b]
    entropy = -np.nansum(weights * np.log(np.where(weights > 0, weights, 1)), axis=-1)
    np.testing.assert_allclose(measured["row_entropy"][b, ..., :n], entropy[..., :n], rtol=1e-4, atol=1e-6)
    assert np.isnan(measured["row_entropy"][b, ..., n:]).all()


def test_unnormalised_attention_received_and_shared(run, raw) -> None:
    """After WEIGHTS edits rows need not sum to 1: the one statistic is of the weights as used, the other of shares."""
    half = edit("weights", "scale", 0.5, heads=2)
    record = run(Probe(attention_received=True, attention_share=True), compose(mask_key(1, layers=1), half)).record
    weights = raw["weights"][0][0, 2].astype(np.float64)
    np.testing.assert_allclose(record["attention_received"][0, 0, 2], over_later_queries(0, weights / 2), rtol=1e-5)
    np.testing.assert_allclose(record["attention_share"][0, 0, 2], over_later_queries(0, weights), rtol=1e-5)


def test_statistics_of_the_residual_stream(raw, measured) -> None:
    h = np.concatenate([raw["embed"][:, None], raw["resid"]], axis=1)
    size = np.abs(h)
    np.testing.assert_array_equal(measured["resid_max"], size.max(axis=-1))
    np.testing.assert_allclose(measured["resid_norm"], np.sqrt((h.astype(np.float64) ** 2).sum(axis=-1)), rtol=1e-6)
    np.testing.assert_array_equal(measured["resid_median"], np.median(size, axis=-1).astype(np.float32))
    real = ~np.isnan(size[..., 0])
    np.testing.assert_array_equal(
        measured["resid_argmax"], np.where(real, np.where(real[..., None], size, 0).argmax(axis=-1), -1)
    )
    assert measured["resid_argmax"].dtype == np.int32
    np.testing.assert_allclose(measured["resid_kurtosis"], stats.kurtosis(h.astype(np.float64), axis=-1), rtol=1e-4, atol=1e-5)
    unit = h / np.linalg.norm(h, axis=-1, keepdims=True)
    np.testing.assert_allclose(measured["resid_first_cosine"], (unit * unit[:, :, :1]).sum(axis=-1), atol=1e-5)
    assert (real.sum(axis=2) == LENGTHS[:, None]).all()


def test_norms_of_queries_keys_and_values(raw, measured) -> None:
    for name in ("query", "key", "value"):
        norms = np.sqrt((raw[Capture(Site(name)).name].astype(np.float64) ** 2).sum(axis=-1)).swapaxes(2, 3)
        np.testing.assert_allclose(measured[f"{name}_norm"], norms, rtol=1e-6)


def test_cosine_of_queries_with_a_key(raw, measured) -> None:
    """From the scores: their cosine is score / (scale |q| |k|), as the rotation keeps norms."""
    norms = {name: np.sqrt((raw[name].astype(np.float64) ** 2).sum(axis=-1)).swapaxes(2, 3) for name in ("queries", "keys")}
    keys = np.repeat(norms["keys"], 3, axis=2)
    cosine = raw["logits"] * np.sqrt(8) / norms["queries"][..., :, None] / keys[..., None, :]
    want = over_later_queries(0, cosine[0])[[0, 2]]  # the masked layer has scores of -inf
    np.testing.assert_allclose(measured["query_key_cosine"][0][[0, 2]], want, rtol=1e-4, atol=1e-6)


def test_loss_of_the_next_token(run, tokens, measured) -> None:
    logits = np.asarray(run(Probe(), mask_key(1, layers=1)).logits, np.float64)
    for b, n in enumerate(LENGTHS):
        log_p = logits[b] - np.logaddexp.reduce(logits[b], axis=-1, keepdims=True)
        np.testing.assert_allclose(measured["nll"][b, : n - 1], -log_p[np.arange(n - 1), tokens[b, 1:n]], rtol=1e-5)
        assert np.isnan(measured["nll"][b, n - 1 :]).all()


def test_loss_is_computed_in_blocks_of_tokens(tiny_params, tiny_config, tokens, monkeypatch) -> None:
    whole = sinkjax.forward(tiny_params, tokens, tiny_config, probe=Probe(nll=True)).record["nll"]
    monkeypatch.setattr("sinkjax.transformer.output.NLL_TOKENS", 6)  # three tokens of each prompt at a time, and one left over
    jax.clear_caches()
    in_blocks = sinkjax.forward(tiny_params, tokens, tiny_config, probe=Probe(nll=True)).record["nll"]
    jax.clear_caches()
    np.testing.assert_allclose(in_blocks, whole, rtol=1e-6)


FLOATS = hnp.arrays(
    st.sampled_from([np.float32, np.float64]),
    st.sampled_from([1, 4, 5]),
    elements=st.sampled_from([0.0, -0.0, 1.0, -1.0, 1.5, -2.0, 3e-30, 1e30, 7.0]) | st.floats(-100, 100, width=32),
)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(x=FLOATS)
@example(x=np.array([3.0, -1.0], np.float32))
@example(x=np.array([2.0, -2.0, 2.0, 5.0], np.float64))
def test_median_and_argmax(x: np.ndarray) -> None:
    """Any number of dims, odd and even, with ties and zeros of both signs, in both dtypes."""
    with jax.enable_x64(True):
        x = jnp.asarray(x)
        tiny = jnp.finfo(x.dtype).tiny
        x = jnp.where(jnp.abs(x) < tiny, 0, x)  # XLA flushes subnormal numbers to zero
        view = View(jnp.array([1]))
        np.testing.assert_array_equal(abs_median(x, view), jnp.median(jnp.abs(x), axis=-1))
        np.testing.assert_array_equal(abs_argmax(x, view), np.argmax(np.abs(np.asarray(x)), axis=-1))
        assert abs_median(x, view).dtype == x.dtype


def test_ties_take_the_lowest_dim(run) -> None:
    tie = set_residual(3, [50.0, -50.0, 50.0], dims=[20, 9, 15], layers=1)
    record = run(Probe(resid_argmax=True, resid_max=True), tie).record
    assert (np.asarray(record["resid_argmax"])[:, 2, 3] == 9).all()
    assert (np.asarray(record["resid_max"])[:, 2, 3] == 50).all()


PROBES = {"maps": Probe(attention=(0, 2)), "raw": RAW, "all": Probe.of("nll", *BUILT_IN)}


@pytest.mark.parametrize("name", [*BUILT_IN, *PROBES])
def test_a_probe_changes_no_bit(run, name: str) -> None:
    """Every statistic alone on a plain run, and all at once on an edited one."""
    edits = mask_key(0, layers=1) if name in PROBES else ()
    probe = PROBES[name] if name in PROBES else Probe.of(name)
    np.testing.assert_array_equal(run(probe, edits).logits, run(Probe(), edits).logits)


def test_a_probe_changes_no_bit_of_a_long_prompt(tiny_params, tiny_config) -> None:
    """From 512 positions on, nobody divides weights but who looks at them, and sees true ones."""
    config = dataclasses.replace(tiny_config, context=512)
    tokens = np.random.default_rng(1).integers(0, 61, (2, 512))
    run = lambda *args: sinkjax.forward(tiny_params, tokens, config, *args, lengths=np.array([512, 400]))  # noqa: E731
    largest = Statistic("largest", Site.WEIGHTS, lambda x, view: x.max(axis=-1), ("prompt", "layer", "head", "query"))
    received = Probe(attention_received=True)
    everything = dataclasses.replace(Probe.of(*BUILT_IN), attention=(0,), capture=(Capture(Site.WEIGHTS),), extra=(largest,))
    plain, sums, seen = run((), Probe()), run((), received), run((), everything)
    np.testing.assert_array_equal(sums.logits, plain.logits)
    np.testing.assert_array_equal(seen.logits, plain.logits)
    np.testing.assert_array_equal(seen.record["attention_received"], sums.record["attention_received"])
    weights = np.asarray(seen.record["weights"])
    np.testing.assert_allclose(weights[0].sum(axis=-1), 1, rtol=1e-5)
    np.testing.assert_allclose(seen.record["largest"][0], weights[0].max(axis=-1), rtol=1e-6)
    entropy = -(weights[0] * np.log(np.where(weights[0] > 0, weights[0], 1))).sum(axis=-1)
    np.testing.assert_allclose(seen.record["row_entropy"][0], entropy, rtol=1e-4, atol=1e-6)
    neutral = run(edit("weights", "scale", 1.0), received)
    np.testing.assert_allclose(neutral.logits[0], plain.logits[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("site", SITES_WITH_VALUES)
def test_a_capture_holds_the_chosen_layers_positions_and_dims(run, raw, site: Site) -> None:
    layers, positions, dims = (2, 0), (8, 3), (5, 1)
    capture = Capture(site, layers=None if site == Site.EMBED else layers, positions=positions, dims=dims, name="seen")
    out = run(Probe(capture=(capture,)), mask_key(1, layers=1)).record
    whole = raw[Capture(site).name]
    if site != Site.EMBED:
        whole = whole[:, list(layers)]
    position_axis = whole.ndim - (3 if SITES[site].heads and SITES[site].dims else 2)
    whole = np.take(whole, positions, axis=position_axis)[..., list(dims)]
    np.testing.assert_array_equal(out["seen"], whole)
    assert len(out.dims["seen"]) == out["seen"].ndim


def test_extra_statistics_over_queries_are_joined_and_others_added_up(run, raw) -> None:
    largest = Statistic("largest", Site.WEIGHTS, lambda w, view: w.max(axis=-1), ("prompt", "layer", "head", "query"))
    total = Statistic(
        "mass",
        Site.WEIGHTS,
        lambda w, view: jnp.where(view.real_rows, w, 0)[..., 0].sum(axis=2),
        ("prompt", "layer", "head"),
        finish=lambda sums, lengths: sums / lengths[:, None],
    )
    spread = Statistic("spread", Site.RESID, lambda h, view: h.max(axis=-1) - h.min(axis=-1), ("prompt", "depth", "position"))
    record = run(Probe(extra=(largest, total, spread)), mask_key(1, layers=1)).record
    weights = raw["weights"]
    np.testing.assert_array_equal(record["largest"][0], weights[0].max(axis=-1))
    np.testing.assert_array_equal(record["largest"][1, ..., :7], weights[1, ..., :7, :7].max(axis=-1))
    assert np.isnan(record["largest"][1, ..., 7:]).all()
    np.testing.assert_allclose(record["mass"], np.nansum(weights[..., 0], axis=-1) / LENGTHS[:, None, None], rtol=1e-6)
    h = np.concatenate([raw["embed"][:, None], raw["resid"]], axis=1)
    np.testing.assert_allclose(record["spread"], h.max(axis=-1) - h.min(axis=-1), rtol=1e-6)


def test_heads_that_sink_are_counted_without_the_query_at_the_key(run, raw) -> None:
    eps = 0.12
    found = np.asarray(run(Probe(extra=(sinking_heads(eps),)), mask_key(1, layers=1)).record["sinking_heads"])
    for b, n in enumerate(LENGTHS):
        for key in range(n - 1):
            expected = (raw["weights"][b, :, :, key + 1 : n, key].mean(axis=-1) > eps).mean(axis=-1)
            np.testing.assert_allclose(found[b, :, key], expected, rtol=1e-6)
        assert np.isnan(found[b, :, n:]).all()
    assert len(np.unique(found[:, :, :5])) > 3
    halved = edit(Site.WEIGHTS, "scale", 0.5)  # of all rows: shares stay what they are
    shares = (run(Probe(extra=(sinking_heads(eps, shares=True),)), edits).record["sinking_heads"] for edits in ((), halved))
    np.testing.assert_allclose(*(found[:, 0] for found in shares), rtol=1e-6)  # later layers have another stream
    assert repr(sinking_heads(0.1)) != repr(sinking_heads(0.2))  # a store is told from another one's by this


def test_statistics_see_bfloat16_in_float32(tiny_params, tiny_config, tokens) -> None:
    """The weights rounded to bfloat16, all else wide: statistics are those of the rounded stream."""
    rounded = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), tiny_params)
    probe = Probe(resid_norm=True, resid_median=True, capture=(Capture(Site.RESID),))
    record = sinkjax.forward(rounded, tokens, tiny_config, probe=probe).record
    assert record["resid"].dtype == jnp.bfloat16
    h = np.asarray(record["resid"].astype(jnp.float32), np.float64)
    np.testing.assert_allclose(record["resid_norm"][:, 1:], np.sqrt((h**2).sum(axis=-1)), rtol=1e-6)
    np.testing.assert_array_equal(record["resid_median"][:, 1:], np.median(np.abs(h), axis=-1).astype(np.float32))


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (lambda x, view: 3.0, r"'own' .*\(2, position\), not 3.0"),
        (lambda x, view: None, "not None"),
        (lambda x, view: x.mean(), r"not float32 of shape \(\)"),
        (lambda x, view: x, r"not float32 of shape \(2, 10, 32\)"),
        (lambda x, view: x[0], r"not float32 of shape \(10, 32\)"),
        (lambda x, view: x[..., 0] + 1j, "not complex64"),
    ],
)
def test_a_statistic_of_another_shape_than_it_states_is_refused(run, fn: Callable, message: str) -> None:
    with pytest.raises(SinkjaxError, match=message):
        run(Probe(extra=(Statistic("own", Site.ATTN_OUT, fn, ("prompt", "layer", "position")),)))


def test_probes_are_equal_by_value_and_hashable() -> None:
    assert Probe(attention=[0, 2]) == Probe(attention=range(0, 3, 2)) == Probe(attention=(0, 2))
    assert hash(Probe(capture=[Capture("resid", layers=[1])])) == hash(Probe(capture=(Capture(Site.RESID, layers=(1,)),)))
    assert {field.name for field in dataclasses.fields(Probe)} >= set(BUILT_IN)
