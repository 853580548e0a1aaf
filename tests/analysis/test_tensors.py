"""Metrics of arrays that another program computed: those of a record, whatever the library; other shapes are refused."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import sinkjax
from sinkjax import Capture, Probe, SinkjaxError, Site, metrics

L, B, H, T, D = 3, 2, 4, 9, 6


@pytest.fixture(scope="module")
def maps() -> np.ndarray:
    weights = np.tril(np.random.default_rng(0).random((L, B, H, T, T)) ** 4)
    return weights / weights.sum(axis=-1, keepdims=True)


def test_they_agree_with_a_record_of_the_forward() -> None:
    model = sinkjax.load("mini-softmax")
    tokens, lengths = np.random.default_rng(0).integers(2, 99, (3, 12)), [12, 7, 12]
    measured = dict.fromkeys(("attention_received", "attention_share", "resid_max", "resid_norm", "resid_median"), True)
    probe = Probe(attention=True, resid_first_cosine=True, capture=(Capture(Site.RESID), Capture(Site.EMBED)), **measured)
    record = sinkjax.forward(model, tokens, probe=probe, lengths=lengths).record
    states = jnp.concatenate([record["embed"][None], jnp.moveaxis(record["resid"], 1, 0)])
    found = metrics.from_tensors(jnp.moveaxis(record["attention"], 1, 0), list(states), lengths, last_is_normed=False)
    for name in (*measured, "resid_first_cosine"):
        assert found.dims[name] == record.dims[name]
        np.testing.assert_allclose(found[name], record[name], rtol=1e-5, atol=1e-6, err_msg=name)
    want = [np.median(np.abs(states[1, b, :length])) for b, length in enumerate(lengths)]
    np.testing.assert_allclose(metrics.hidden_median(found)[:, 1], want, rtol=1e-6)
    np.testing.assert_array_equal(metrics.sink_rate(found, per="layer"), metrics.sink_rate(record, per="layer"))
    np.testing.assert_allclose(metrics.norm_ratio(found, 0), metrics.norm_ratio(record, 0), rtol=1e-5)


def test_a_last_depth_that_was_normed_is_unknown() -> None:
    """The other depths stay, and a metric of the last one is NaN: transformers' last hidden state has passed the final norm."""
    states = np.random.default_rng(0).normal(size=(4, B, T, D)).astype(np.float32)
    states[2:, 0, 0, 1] = 5e5
    whole, found = metrics.from_tensors(hidden=states, last_is_normed=False), metrics.from_tensors(hidden=states)
    for name in whole:
        np.testing.assert_array_equal(found[name][:, :-1], whole[name][:, :-1])
        assert np.isnan(found[name][:, -1]).all()
    for of in (metrics.norm_ratio, metrics.top1_over_median, metrics.massive_activations):
        np.testing.assert_array_equal(of(found, 0)[:, :-1], of(whole, 0)[:, :-1])
        assert np.isnan(of(found, 0)[:, -1]).all()
    assert metrics.largest_activation(found).position[:, -1].tolist() == [-1] * B
    np.testing.assert_array_equal(metrics.massive_onset(whole), [2, np.inf])
    np.testing.assert_array_equal(metrics.massive_onset(found), [2, np.nan])  # the second may have one at the last depth
    with pytest.raises(SinkjaxError, match=r"one entry.*last_is_normed=False"):
        metrics.from_tensors(hidden=states[:1])


def test_every_library_and_dtype_gives_the_same(maps: np.ndarray) -> None:
    want = metrics.from_tensors(maps)["attention_received"]
    by_hand = np.stack([maps[..., key:, key].mean(axis=-1) for key in range(T)], axis=-1).swapaxes(0, 1)
    np.testing.assert_allclose(want, by_hand, rtol=1e-12)
    assert want.dtype == np.float64
    grown = torch.tensor(maps, requires_grad=True)
    given = {
        "a list": list(maps), "torch": grown, "a tuple of torch": tuple(grown), "float32": maps.astype(np.float32),
        "jax": jnp.asarray(maps, jnp.float32), "jax bfloat16": jnp.asarray(maps, jnp.bfloat16),
        "torch bfloat16": grown.bfloat16(),
    }  # fmt: skip
    for name, arrays in given.items():
        rough = 0.01 if "bfloat16" in name else 1e-6
        found = metrics.from_tensors(arrays)["attention_received"]
        assert found.shape == (B, L, H, T)
        assert found.dtype in (np.float32, np.float64)
        np.testing.assert_allclose(found, want, rtol=0, atol=rough, err_msg=name)
    np.testing.assert_allclose(metrics.from_tensors(maps[1])["attention_received"][:, 0], want[:, 1], rtol=1e-12)
