"""Metrics against hand-computed cases, against definitions written as loops, and against what they must not depend on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sinkjax.analysis import metrics
from sinkjax.errors import SinkjaxError
from sinkjax.probes.record import Record, to_dataset

DIMS = {
    "attention_received": ("prompt", "layer", "head", "key"),
    "resid_max": ("prompt", "depth", "position"),
    "resid_median": ("prompt", "depth", "position"),
    "resid_norm": ("prompt", "depth", "position"),
    "nll": ("prompt", "position"),
}


def causal_maps(rng, layers, heads, length):
    """Random attention maps [layer, head, query, key] with rows that sum to 1, some of them sharp."""
    weights = np.tril(rng.random((layers, heads, length, length)) ** 4)
    return weights / weights.sum(-1, keepdims=True)


def received(maps, lengths, size):
    """attention_received of maps [prompt][layer, head, length, length], by its definition, in plain loops over keys."""
    layers, heads = maps[0].shape[:2]
    result = np.full((len(maps), layers, heads, size), np.nan)
    for prompt, length in enumerate(lengths):
        for key in range(length):
            result[prompt, :, :, key] = maps[prompt][:, :, key:length, key].mean(-1)
    return result


@pytest.fixture
def ragged():
    """Three prompts of lengths 6, 4 and 1 in a batch of width 6: maps, lengths, record."""
    rng = np.random.default_rng(7)
    lengths = [6, 4, 1]
    maps = [causal_maps(rng, 3, 4, length) for length in lengths]
    present = np.arange(6) < np.array(lengths)[:, None, None]
    residual = np.where(present[..., None], rng.standard_normal((3, 4, 6, 8)) * 10.0 ** rng.integers(0, 3, (3, 4, 6, 1)), np.nan)
    nll = np.where(np.arange(6) < np.array(lengths)[:, None] - 1, rng.random((3, 6)), np.nan)
    values = {
        "attention_received": received(maps, lengths, 6),
        "resid_max": np.abs(residual).max(-1),
        "resid_median": np.median(np.abs(residual), -1),
        "resid_norm": np.linalg.norm(residual, axis=-1),
        "nll": nll,
    }
    return maps, lengths, Record(values, DIMS)


def one_map(rows):
    """The record of one prompt, one layer and one head with the given attention map."""
    rows = np.array(rows, dtype=float)
    return Record({"attention_received": received([rows[None, None]], [len(rows)], len(rows))})


def test_scores_of_a_map_worked_out_by_hand():
    record = one_map([[1, 0, 0, 0], [0.2, 0.8, 0, 0], [0.4, 0.1, 0.5, 0], [0.0, 0.3, 0.3, 0.4]])
    # means over the queries that see the key: 1.6/4, 1.2/3, 0.8/2, 0.4/1; sums over the length: 0.4, 0.3, 0.2, 0.1
    for key in range(4):
        assert metrics.sink_rate(record, key, 0.39).tolist() == [1.0]
        assert metrics.sink_rate(record, key, 0.41).tolist() == [0.0]
    by_length = [metrics.sink_rate(record, key, 0.25, rule="queipo")[0] for key in range(4)]
    assert by_length == [1.0, 1.0, 0.0, 0.0]


def test_gu_is_strict_and_queipo_is_not():
    record = one_map([[1, 0], [0, 1]])
    assert metrics.sink_rate(record, 0, 0.5).tolist() == [0.0]
    assert metrics.sink_rate(record, 0, 0.5, rule="queipo").tolist() == [1.0]


@pytest.mark.parametrize("rule", metrics.RULES)
def test_sink_rate_equals_the_definition_in_loops(ragged, rule):
    maps, lengths, record = ragged
    for key in range(4):
        expected = []
        for heads, length in zip(maps, lengths, strict=True):
            columns = heads[:, :, :, key : key + 1].sum((2, 3)) if key < length else np.full((3, 4), np.nan)
            score = columns / (length - key if rule == "gu" else length)
            expected.append(np.nan if key >= length else np.mean(score > 0.3 if rule == "gu" else score >= 0.3))
        np.testing.assert_allclose(metrics.sink_rate(record, key, rule=rule), expected)


@given(
    scores=hnp.arrays(np.float64, (2, 3, 4, 5), elements=st.floats(0, 1)),
    low=st.floats(0, 1),
    high=st.floats(0, 1),
    key=st.integers(0, 4),
    rule=st.sampled_from(metrics.RULES),
)
def test_sink_rate_is_a_share_that_falls_with_eps(scores, low, high, key, rule):
    record = Record({"attention_received": scores})
    low, high = sorted((low, high))
    lax, strict = (metrics.sink_rate(record, key, eps, rule=rule) for eps in (low, high))
    assert np.all((lax >= strict) & (strict >= 0) & (lax <= 1))
    np.testing.assert_array_equal(lax * 12, np.round(lax * 12, 9).round())


def padded(record, width):
    """The same record in a batch that is `width` positions wider."""
    return Record({name: np.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, width)], constant_values=np.nan) for name, a in record.items()})


FUNCTIONS = {
    "sink_rate": metrics.sink_rate,
    "sink_rate_queipo": lambda record: metrics.sink_rate(record, 1, rule="queipo"),
    "sink_position": lambda record: metrics.sink_position(record, min_queries=2),
    "sink_position_head": lambda record: metrics.sink_position(record, min_queries=2, per="head"),
    "sink_rate_among": lambda record: metrics.sink_rate_among(record, np.array([True]), min_queries=1),
    "sink_onset": metrics.sink_onset,
    "massive_activations": lambda record: metrics.massive_activations(record, 0, threshold=5, ratio=2),
    "norm_ratio": lambda record: metrics.norm_ratio(record, 0),
    "top1_over_median": lambda record: metrics.top1_over_median(record, 0),
    "largest_activation": metrics.largest_activation,
    "massive_onset": lambda record: metrics.massive_onset(record, None, threshold=5, ratio=2),
    "mean_nll": metrics.mean_nll,
    "perplexity": metrics.perplexity,
    "undecided": lambda record: metrics.undecided_heads(record, Record({k: v * 1.01 for k, v in record.items()})),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_padding_prompts_and_edits_leave_every_value_alone(ragged, name):
    *_, record = ragged
    function = FUNCTIONS[name]
    alone = np.asarray(function(record))
    np.testing.assert_allclose(np.asarray(function(padded(record, 3))), alone)
    swept = Record({key: np.stack([value, value[::-1]]) for key, value in record.items()})
    axis = 1 if isinstance(function(record), metrics.Peak) else 0  # a Peak stacks two arrays
    both = np.asarray(function(swept))
    np.testing.assert_allclose(both.take(0, axis), alone)
    np.testing.assert_allclose(both.take(1, axis), np.flip(alone, axis))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_record_dataset_and_jax_arrays_agree(ragged, name):
    *_, record = ragged
    expected = np.asarray(FUNCTIONS[name](record))
    np.testing.assert_array_equal(np.asarray(FUNCTIONS[name](to_dataset(record))), expected)
    with jax.enable_x64(True):
        on_device = Record({key: jnp.asarray(value) for key, value in record.items()})
        np.testing.assert_array_equal(np.asarray(FUNCTIONS[name](on_device)), expected)


def test_sink_position_ignores_keys_that_few_queries_see():
    record = one_map(np.eye(5))  # every key but key 0 gets attention from itself alone: mean 1 / (5 - key), largest at the end
    assert metrics.sink_position(record, min_queries=1).position.tolist() == [4]
    peak = metrics.sink_position(record, min_queries=3)
    assert peak.position.tolist() == [2]
    np.testing.assert_allclose(peak.value, [1 / 3])


def test_sinks_among_chosen_keys():
    scores = np.zeros((2, 1, 2, 5))
    scores[0, 0, 0, 2], scores[0, 0, 1, 0] = 0.9, 0.9  # head 0 sinks on key 2, head 1 on key 0
    record = Record({"attention_received": scores})
    stops = np.array([[False, True, True, False, False], [False] * 5])
    rate = metrics.sink_rate_among(record, stops, min_queries=1)
    assert rate[0] == 0.5
    assert np.isnan(rate[1])
    assert np.isnan(metrics.sink_rate_among(record, stops, min_queries=5)).all()


@given(hnp.arrays(np.float64, (2, 2, 3, 4), elements=st.floats(0, 1)), hnp.arrays(bool, (2, 4)))
def test_rate_among_is_at_least_the_best_single_rate_and_at_most_their_sum(scores, where):
    record = Record({"attention_received": scores})
    among = metrics.sink_rate_among(record, where, min_queries=1)
    for prompt, keys in enumerate(where):
        single = [metrics.sink_rate(record, int(key))[prompt] for key in np.flatnonzero(keys)]
        if single:
            assert max(single) <= among[prompt] + 1e-12 <= sum(single) + 2e-12
        else:
            assert np.isnan(among[prompt])


def test_token_mask_reads_tokens_and_leaves_out_the_first():
    words = {0: ".", 1: " .", 2: "\n", 3: "Mr.", 4: " the"}
    mask = metrics.token_mask(np.array([[0, 4, 0, 1], [2, 2, 3, 4]]), lambda ids: "".join(words[i] for i in ids))
    assert mask.tolist() == [[False, False, True, True], [False, True, False, False]]


def test_onset_is_the_first_crossing_or_never():
    values = [[0.1, 0.6, 0.2, 0.9], [0.5, 0.5, 0.5, 0.5], [0.1, np.nan, 0.9, 0.9], [0.9, np.nan, 0.1, 0.1]]
    np.testing.assert_array_equal(metrics.onset(values, 0.5), [1.0, metrics.NEVER, np.nan, 0.0])


def test_both_parts_of_suns_definition_are_needed_and_strict():
    largest, median = [2000.0, 100.0, 90.0, 500.0, np.nan], [0.2, 0.01, 0.01, 0.5, 0.2]
    np.testing.assert_array_equal(metrics.is_massive(largest, median), [1, 0, 0, 0, np.nan])
    np.testing.assert_array_equal(metrics.is_massive(largest, 0.2), [1, 0, 0, 1, np.nan])
    np.testing.assert_allclose(
        metrics.top1_over_median(Record({"resid_max": np.array([[largest]]), "resid_median": np.array([[median]])}), 3), [[1000]]
    )


def test_the_median_of_a_massive_activation_is_that_of_the_whole_hidden_state():
    record = {
        "resid_max": np.array([[[2000.0, 150.0, 2000.0, np.nan]]]),
        "resid_median": np.array([[[3.0, 0.1, 0.2, np.nan]]]),  # by position: of position 0 more than a thousandth
    }
    np.testing.assert_array_equal(metrics.hidden_median(Record(record)), [[0.2]])
    np.testing.assert_array_equal(metrics.massive_activations(Record(record)), [[[1, 0, 1, np.nan]]])
    np.testing.assert_array_equal(metrics.massive_activations(Record(record), 0), [[1]])
    exact = Record(record | {"state_median": np.array([[2.0]])})
    np.testing.assert_array_equal(metrics.massive_activations(exact), [[[0, 0, 0, np.nan]]])


def test_massive_onset_at_a_position_and_anywhere():
    largest = np.full((1, 4, 3), 1.0)
    largest[0, 3, 0], largest[0, 2, 1] = 5000, 5000
    record = Record({"resid_max": largest, "resid_median": np.ones((1, 4, 3))})
    assert metrics.massive_onset(record).tolist() == [3.0]
    assert metrics.massive_onset(record, None).tolist() == [2.0]
    assert metrics.massive_onset(record, 2).tolist() == [metrics.NEVER]


def test_norm_ratio_leaves_the_position_itself_out():
    record = Record({"resid_norm": np.array([[[30.0, 1.0, 2.0, np.nan]], [[5.0, np.nan, np.nan, np.nan]]])})
    ratio = metrics.norm_ratio(record)
    np.testing.assert_allclose(ratio[0, 0], [20.0, 1 / 16, 2 / 15.5, np.nan])
    assert np.isnan(ratio[1]).all()


def test_mean_nll_and_perplexity_by_hand():
    record = Record({"nll": np.array([[1.0, 3.0, np.nan], [np.nan] * 3, [2.0, np.nan, np.nan]])})
    np.testing.assert_allclose(metrics.mean_nll(record), [2.0, np.nan, 2.0])
    np.testing.assert_allclose(metrics.perplexity(record), [np.exp(2), np.nan, np.exp(2)])
    np.testing.assert_allclose(metrics.mean_nll(record, [3, 1, 3]), [2.0, np.nan, np.nan])  # the third lost a token to a NaN
    record = Record({"nll": np.array([[1.0, np.nan, 3.0, np.nan], [1.0, np.inf, 3.0, np.nan], [np.nan, 1.0, 3.0, np.nan]])})
    np.testing.assert_allclose(metrics.mean_nll(record), [np.nan, np.inf, 2.0])  # only the last has all its losses


@given(hnp.arrays(np.float64, (2, 2, 3, 2), elements=st.floats(0, 1)), st.floats(0, 1))
@example(np.ones((2, 2, 3, 2)), np.nextafter(1.0, 0.0))  # which bfloat16 rounds to 1
def test_heads_that_change_sides_between_dtypes_are_undecided(scores, eps):
    one, two = Record({"attention_received": scores}), Record({"attention_received": scores.astype(jnp.bfloat16)})
    changed = metrics.sink_rate(one, 0, eps, per="head") != metrics.sink_rate(two, 0, eps, per="head")
    assert np.all(metrics.undecided_heads(one, two, 0, eps, per="head")[changed] == 1)


def test_secondary_sinks_are_tokens_aligned_with_the_first() -> None:
    """Two layers, two heads and 12 positions: position 3 is aligned where layer 1 reads it, position 11 is seen by one query."""
    cosines = np.zeros((1, 3, 12))
    cosines[:, :, 0], cosines[:, 1, 3], cosines[:, 1, 11], cosines[:, 2, 5] = 1, -0.95, 1, 1
    received = np.full((1, 2, 2, 12), 0.1)
    received[:, 1, :, 3] = 0.2, 0.6
    found = metrics.secondary_sinks({"resid_first_cosine": cosines, "attention_received": received})
    np.testing.assert_allclose(found.share, [[0, 1 / 4]])  # positions 1 to 4 are seen by 8 queries
    np.testing.assert_allclose(found.attention, [[np.nan, 0.4]])
    np.testing.assert_allclose(found.others, [[0.1, 0.1]])
    with pytest.raises(SinkjaxError, match="cosine must be in"):
        metrics.secondary_sinks({"resid_first_cosine": cosines, "attention_received": received}, 1.5)


def test_whole_attention_maps_are_not_taken_for_what_keys_receive(ragged):
    maps = ragged[0][0]  # [layer, head, query, key]
    with pytest.raises(SinkjaxError, match=r"\[3, 4, 6, 6\] holds whole maps"):
        metrics.sink_rate({"attention_received": maps})
    onto_first = np.zeros((1, 1, 6, 6))
    onto_first[..., 0] = 1  # six heads and six keys: a record
    assert metrics.sink_rate({"attention_received": onto_first}) == 1
