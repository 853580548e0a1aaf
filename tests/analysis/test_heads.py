"""Statistics of heads: the papers' definitions on whole maps, and properties that hold for any attention."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sinkjax
from sinkjax import Capture, Probe
from sinkjax.analysis import metrics
from sinkjax.errors import SinkjaxError

LENGTHS = np.array([9, 6])


def maps(seed: int, sink: float = 0.0) -> np.ndarray:
    """Causal weights [prompt, layer, head, query, key]; `sink` of each row goes to key 0."""
    scores = np.random.default_rng(seed).normal(size=(2, 3, 4, 9, 9))
    weights = np.exp(scores) * np.tri(9)
    weights /= weights.sum(-1, keepdims=True)
    return (1 - sink) * weights + sink * np.eye(9)[0]


def record_of(weights: np.ndarray, lengths: np.ndarray = LENGTHS) -> dict[str, np.ndarray]:
    real = np.arange(9) < lengths[:, None, None, None]
    received = np.stack(
        [[w[..., :n, k].sum(-1) / max(n - k, 1) for k in range(9)] for w, n in zip(weights, lengths, strict=True)]
    )
    own = np.einsum("blhii->blhi", weights)
    return {
        "attention_received": np.where(real, np.moveaxis(received, 1, -1), np.nan),
        "attention_self": np.where(real, own, np.nan),
    }


@pytest.fixture(scope="module")
def record(tiny_params, tiny_config):
    tokens = np.random.default_rng(0).integers(0, 61, (2, 9))
    probe = Probe(attention_received=True, attention_self=True, value_norm=True, attention=True, capture=[Capture("value")])
    return sinkjax.forward(tiny_params, tokens, tiny_config, (), probe, LENGTHS).record


def test_diagonal_share_is_the_mean_of_a_models_diagonal(record):
    weights = np.asarray(record["attention"], float)
    for b, n in enumerate(LENGTHS):
        wanted = [weights[b, :, :, i, i] for i in range(1, n)]
        np.testing.assert_allclose(metrics.diagonal_share(record, per="head")[b], np.mean(wanted, axis=0), rtol=1e-5)
        np.testing.assert_array_equal(record["attention_self"][b, :, :, :n], np.einsum("lhii->lhi", weights[b])[..., :n])


@given(st.integers(0, 99))
def test_diagonal_and_sink_share_one_row(seed):
    """A diagonal head has 1 and a sinking one 0; together with the sink they have at most the row."""
    eye = record_of(np.broadcast_to(np.eye(9), (2, 3, 4, 9, 9)))
    np.testing.assert_array_equal(metrics.diagonal_share(eye), 1)
    np.testing.assert_array_equal(metrics.diagonal_share(record_of(maps(seed, 1.0))), 0)
    some = record_of(maps(seed, 0.3))
    assert (metrics.diagonal_share(some, per="head") <= 1 - 0.3 + 1e-12).all()


@given(st.integers(0, 99), st.floats(0, 1), st.floats(0, 1), st.integers(0, 4))
def test_divergence_is_the_difference_of_later_queries_attention(seed, one, two, key):
    """As in the authors' code: attentions[:, 1:, 0].mean() of one batch less that of another."""
    full = np.array([9, 9])
    here, there = maps(seed, one), maps(seed + 1, two)
    wanted = (here[..., key + 1 :, key].mean(-1) - there[..., key + 1 :, key].mean(-1)).mean(0)
    found = metrics.sink_divergence(record_of(here, full), record_of(there, full), key)
    np.testing.assert_allclose(found, wanted, atol=1e-12)
    back = metrics.sink_divergence(record_of(there, full), record_of(here, full), key)
    np.testing.assert_allclose(found, -back, atol=1e-12)
    if key == 0:  # what each has beyond the rest of its row
        assert (np.abs(metrics.sink_divergence(record_of(here), record_of(here))) == 0).all()


def test_divergence_takes_a_key_for_each_prompt_and_excludes_prompts_that_end_at_it():
    here, there = record_of(maps(0)), record_of(maps(1))
    own = metrics.sink_divergence(here, there, np.array([2, 2]), np.array([3, 3]))
    np.testing.assert_allclose(own, metrics.sink_divergence(here, there, 2, 3))
    only_first = maps(0)[0, ..., 6:, 5].mean(-1) - maps(1)[0, ..., 6:, 5].mean(-1)
    np.testing.assert_allclose(metrics.sink_divergence(here, there, 5), only_first, rtol=1e-12)  # the other has 6 tokens


@given(st.integers(0, 99))
def test_load_is_balanced_for_equal_heads_and_moves_to_the_heads_that_do_not_sink(seed):
    alike = np.repeat(maps(seed)[:, :, :1], 4, axis=2)
    np.testing.assert_allclose(metrics.head_load(record_of(alike)), 1, rtol=1e-9)
    mixed = alike.copy()
    mixed[:, :, 1:] = np.eye(9)[0]  # three heads write nothing but their sink's value
    np.testing.assert_allclose(metrics.head_load(record_of(mixed))[..., 0], 4, rtol=1e-9)
    np.testing.assert_allclose(metrics.head_load(record_of(maps(seed))).mean(-1), 1)
    bias = {"attention_received_bias": np.broadcast_to([0.9, 0.5, 0.5, 0.5], (2, 3, 4))}
    np.testing.assert_allclose(metrics.head_load(bias, None)[0, 0], np.array([0.1, 0.5, 0.5, 0.5]) / 0.4)
    with np.errstate(all="raise"):
        nowhere = metrics.head_load({"attention_received_bias": np.ones((2, 3, 4))}, None)
    assert np.isnan(nowhere).all()


def test_value_norms_are_compared_with_the_other_positions(record):
    values = np.asarray(record["values"], float)
    for b, n in enumerate(LENGTHS):
        norms = np.linalg.norm(values[b, :, :n], axis=-1)
        np.testing.assert_allclose(
            metrics.value_norm_ratio(record, 2)[b], norms[:, 2] / np.delete(norms, 2, 1).mean(1), rtol=1e-5
        )


@given(st.integers(0, 99), st.floats(0, np.pi / 2), st.floats(0.1, 50))
def test_the_null_share_is_the_squared_sine_to_the_others_plane(seed, angle, size):
    """Values of the others lie in a plane of a space of five dims, which a rotation turns anywhere."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    others = np.zeros((8, 5))
    others[:, 0], others[:, 1] = np.cos(np.arange(8)), np.sin(np.arange(8))
    sink = size * np.array([np.cos(angle), 0, np.sin(angle), 0, 0])
    values = np.insert(others, 3, sink, axis=0) @ turn
    found = metrics.value_null_share({"values": values[None, None, :, None]}, 3)
    np.testing.assert_allclose(found, np.full((1, 1, 1), np.sin(angle) ** 2), atol=1e-9)


def test_the_null_share_equals_the_definition_on_a_model_and_is_undefined_for_no_value(record):
    values = np.asarray(record["values"], float)
    for energy in (0.5, 0.9, 0.99):
        found = metrics.value_null_share(record, np.array([0, 2]), energy)
        for b, n in enumerate(LENGTHS):
            for layer, head in np.ndindex(found.shape[1:]):
                rows = values[b, layer, :n, head]
                others = np.delete(rows, [0, 2][b], axis=0)
                _, sizes, axes = np.linalg.svd(others)
                held = np.cumsum(sizes**2) / (sizes**2).sum()
                span = axes[: int((held < energy).sum()) + 1]
                v = rows[[0, 2][b]]
                wanted = 1 - np.square(span @ v).sum() / np.square(v).sum()
                np.testing.assert_allclose(found[b, layer, head], wanted, atol=1e-5)
    nothing = values.copy()
    nothing[:, :, 0] = 0
    assert np.isnan(metrics.value_null_share({"values": nothing})).all()
    with pytest.raises(SinkjaxError, match="energy must be between 0 and 1, not 1"):
        metrics.value_null_share({"values": values}, energy=1)
