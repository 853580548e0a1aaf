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


def test_a_record_of_tensors_is_read_like_one_of_arrays(maps: np.ndarray) -> None:
    received = metrics.from_tensors(maps)["attention_received"]
    tensor = torch.tensor(received, requires_grad=True)
    np.testing.assert_array_equal(
        metrics.sink_rate({"attention_received": tensor}), metrics.sink_rate({"attention_received": received})
    )


def test_rows_that_do_not_sum_to_1_have_shares(maps: np.ndarray) -> None:
    found = metrics.from_tensors(3 * maps)
    np.testing.assert_allclose(found["attention_received"], 3 * found["attention_share"], rtol=1e-6)


def test_an_array_is_not_a_record(maps: np.ndarray) -> None:
    with pytest.raises(SinkjaxError, match=r"shape \[.*from_tensors"):
        metrics.sink_rate(maps, key=0)


def test_other_shapes_are_refused(maps: np.ndarray) -> None:
    states = np.zeros((L, B, T, D))
    wrong = {
        r"attention must be \[B, H, T, T\].*\[2, 4, 9\]": {"attention": maps[0, :, :, 0]},
        r"attention must be .*\[4, 9, 9\]": {"attention": maps[0, 0]},
        r"attention must be .*\[2, 4, 9, 8\]": {"attention": maps[0, ..., :-1]},
        r"attention must be .*\[2, 4, 9, 9\] and \[1, 4, 9, 9\]": {"attention": [maps[0], maps[1, :1]]},
        "attention must be .* none": {"attention": []},
        r"hidden must be \[L, B, T, d\].*\[2, 9, 6\]": {"hidden": states[0]},
        "2 prompts of 9 positions, but hidden has": {"attention": maps, "hidden": states[:, :, :5]},
        "lengths must be 2 ints from 1 to 9": {"attention": maps, "lengths": [9, 10]},
        "attention must be floats": {"attention": (maps > 0.5).astype(int)},
        "weight on later keys": {"attention": maps.swapaxes(-1, -2)},
        "needs attention, hidden or both": {},
    }
    for message, arguments in wrong.items():
        with pytest.raises(SinkjaxError, match=message):
            metrics.from_tensors(**arguments)
    with pytest.raises(SinkjaxError, match=r"attention_received must have the axes .*\[2, 4, 9\]"):
        metrics.sink_rate({"attention_received": maps[0, :, :, 0]})
