"""Measures on numbers made by hand, against numpy written out: values, ranges, units, labels, what they ask for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.errors import SinkjaxError
from sinkjax.studies.readouts import check_measure, check_positions, label_of, merged, probe_of, read_measure
from sinkjax.studies.scope import Measure, Scope
from sinkjax.studies.vocabulary import *

E, P, L, H, T = 2, 3, 4, 5, 12  # conditions, prompts, layers, heads, positions
SHORT = 9  # tokens of the last prompt; keys and positions beyond are missing
CONFIG = SimpleNamespace(key=1, eps=0.3, length=T, start=4)
SCOPE = Scope(CONFIG, SimpleNamespace(layers=L, heads=H), {"forms": 1})
KEYS = range(T - 7)  # those that at least 8 of 12 queries see


@pytest.fixture(scope="module")
def data() -> xarray.Dataset:
    rng = np.random.default_rng(0)
    received = rng.uniform(0, 0.6, (E, P, L, H, T))
    sizes = rng.uniform(1, 300, (E, P, L + 1, T))
    nll = rng.uniform(1, 5, (E, P, T))
    medians = rng.uniform(0.1, 0.4, (E, P, L + 1))
    heads = rng.uniform(0, 1, (E, P, L, T))
    received[:, -1, ..., SHORT:], sizes[:, -1, ..., SHORT:], nll[:, -1, SHORT - 1 :], nll[..., -1] = (np.nan,) * 4
    return xarray.Dataset(
        {
            "attention_received": (("edit", "prompt", "layer", "head", "key"), received),
            "sinking_heads": (("edit", "prompt", "layer", "key"), heads),
            "mean_attention": (("edit", "prompt", "layer", "key"), heads / 2),
            "resid_max": (("edit", "prompt", "depth", "position"), sizes),
            "resid_median": (("edit", "prompt", "depth", "position"), np.repeat(medians[..., None], T, -1)),
            "nll": (("edit", "prompt", "position"), nll),
        }
    )


def of_prompts(one: Any) -> Any:
    """Numbers written out for a single condition and prompt: (received [L, H, T], sizes [L + 1, T], ...) -> float."""

    def numbers(data: xarray.Dataset) -> np.ndarray:
        return np.array([[one(data.isel(edit=edit, prompt=prompt)) for prompt in range(P)] for edit in range(E)])

    return numbers


def received(x: xarray.Dataset, layers: Any, key: int) -> np.ndarray:
    return np.array([[x["attention_received"].values[layer, head, key] for head in range(H)] for layer in layers])


def sinks(x: xarray.Dataset, layers: Any, key: int, eps: float = 0.3) -> float:
    found = received(x, layers, key)
    return float("nan") if np.isnan(found).any() else 100 * sum(value > eps for value in found.ravel()) / found.size


def largest(x: xarray.Dataset, depths: Any, position: int) -> float:
    return max(x["resid_max"].values[depth, position] for depth in depths)


def typical(x: xarray.Dataset, depths: Any) -> float:
    found = [largest(x, depths, position) for position in range(1, T)]
    return float(np.median([value for value in found if not np.isnan(value)]))


def mean_loss(x: xarray.Dataset, start: int) -> float:
    found = [value for value in x["nll"].values[start:] if not np.isnan(value)]
    return sum(found) / len(found)


MEASURES: list[tuple[Measure, Any]] = [
    (sink_rate(0), lambda x: sinks(x, range(L), 0)),
    (sink_rate(F.key + 1, layer(2)), lambda x: sinks(x, [2], 2)),
    (sink_rate(0, upto(F.forms), 0.5), lambda x: sinks(x, [0, 1], 0, 0.5)),
    (later_sink_rate(3), lambda x: 100 * np.mean([x["sinking_heads"].values[layer, 3] for layer in range(L)])),
    (later_sink_rate(3, between(1, 2)), lambda x: 100 * x["sinking_heads"].values[[1, 2], 3].sum() / 2),
    (attention_to(0), lambda x: 100 * received(x, [1], 0).mean()),  # half depth of four layers
    (attention_to(2, last_layer()), lambda x: 100 * received(x, [3], 2).mean()),
    (later_attention_to(2, 0), lambda x: 100 * x["mean_attention"].values[0, 2]),
    (strongest_later_attention(1), lambda x: 100 * max(x["mean_attention"].values[1, key] for key in range(T - 8) if key != 1)),
    (largest_activation(0), lambda x: largest(x, range(L + 1), 0)),
    (largest_activation(3, layer(0)), lambda x: largest(x, [1], 3)),
    (largest_activation(3, after(F.forms)), lambda x: largest(x, [3, 4], 3)),
    (
        largest_elsewhere(1),
        lambda x: max(
            value
            for depth in range(L + 1)
            for place, value in enumerate(x["resid_max"].values[depth])
            if place != 1 and not np.isnan(value)
        ),
    ),
    (typical_activation(), lambda x: typical(x, range(L + 1))),
    (typical_activation(layer(2)), lambda x: typical(x, [3])),
    (activation_ratio(layer(2)), lambda x: x["resid_max"].values[3, 0] / typical(x, [3])),
    (loss(), lambda x: mean_loss(x, 0)),
    (loss(F.start), lambda x: mean_loss(x, 4)),
    (massive_share(2), lambda x: 100.0 * any(
        x["resid_max"].values[d, 2] > 100 and x["resid_max"].values[d, 2] > 1000 * x["resid_median"].values[d, 2]
        for d in range(1, L + 1)
    )),
]  # fmt: skip


@pytest.mark.parametrize(("measure", "one"), MEASURES, ids=lambda value: str(value) if isinstance(value, Measure) else "")
def test_a_measure_is_its_definition(data, measure, one):
    found = read_measure(measure, SCOPE, data)
    assert found.shape == (E, P)
    np.testing.assert_allclose(found, of_prompts(one)(data), rtol=1e-12)


def test_the_strongest_other_key_is_one_that_eight_queries_see(data):
    whole = data.isel(prompt=slice(2))
    for edit in range(E):
        for prompt in range(2):
            x, rates = whole.isel(edit=edit, prompt=prompt), strongest_other_sink(0)
            others = [key for key in KEYS if key != 0]
            assert read_measure(rates, SCOPE, whole)[edit, prompt] == max(sinks(x, range(L), key) for key in others)
            shares = [100 * received(x, [1], key).mean() for key in KEYS if key != 2]
            assert read_measure(strongest_other_attention(2), SCOPE, whole)[edit, prompt] == pytest.approx(max(shares))
    far = whole.copy(deep=True)
    far["attention_received"][..., len(KEYS) :] = 1.0  # keys that too few queries see
    np.testing.assert_array_equal(*(read_measure(strongest_other_attention(2), SCOPE, one) for one in (whole, far)))


def test_some_documents_have_a_massive_activation_and_some_have_none(data):
    assert set(np.unique(read_measure(massive_share(2), SCOPE, data))) == {0.0, 100.0}


@pytest.mark.parametrize("measure", [sink_rate(10), attention_to(10), largest_activation(10), massive_share(10), sink_lag(10)])
def test_a_position_beyond_a_prompt_has_no_number(data, measure):
    found = read_measure(measure, SCOPE, data)
    assert np.isnan(found[:, -1]).all()
    assert measure.word == "sink_lag" or np.isfinite(found[:, :-1]).all()


def test_the_lag_is_between_the_first_layers_above_half_of_the_peak():
    received, sizes = np.zeros((1, 3, L, H, T)), np.ones((1, 3, L + 1, T))
    received[0, 0, 2:, :4, 0], received[0, 0, 3, 4, 0] = 0.9, 0.9  # 80% of heads from layer 2 on
    received[0, 1, 0, :, 0] = 0.9
    sizes[0, :2, 2:, 0] = 60  # after layer 1
    sizes[0, :, 0, 0] = 900  # the embedding is no layer
    data = xarray.Dataset(
        {
            "attention_received": (("edit", "prompt", "layer", "head", "key"), received),
            "resid_max": (("edit", "prompt", "depth", "position"), sizes),
        }
    )
    np.testing.assert_array_equal(read_measure(sink_lag(0), SCOPE, data), [[1, -1, np.nan]])


def test_statistics_of_later_queries_leave_out_the_query_at_the_key(tiny_config, tiny_params):
    """Against the maps of attention, for prompts of two lengths."""
    tokens, lengths = np.random.default_rng(0).integers(0, tiny_config.vocab_size, (2, 10)), np.array([10, 7])
    few = (*range(tiny_config.layers),)
    scope = Scope(SimpleNamespace(eps=0.15), tiny_config)
    measures = (later_attention_to(2, 1), later_sink_rate(2, layer(1)))
    probe = merged(probe_of(measures, scope), sinkjax.Probe(attention=few))
    record = sinkjax.forward(tiny_params, tokens, tiny_config, (), probe, lengths).record
    data = xarray.Dataset(
        {
            name: (("edit", "prompt", "layer", "key"), np.asarray(record[name])[None])
            for name in ("mean_attention", "sinking_heads")
        }
    )
    maps = np.asarray(record["attention"])[:, 1]  # prompt, head, query, key
    means = np.array([[maps[row, head, 3:length, 2].mean() for head in range(6)] for row, length in enumerate(lengths)])
    np.testing.assert_allclose(read_measure(measures[0], scope, data)[0], 100 * means.mean(1), rtol=1e-5)
    np.testing.assert_allclose(read_measure(measures[1], scope, data)[0], 100 * (means > 0.15).mean(1), rtol=1e-5)
    assert 0 < (means > 0.15).mean() < 1


def everything() -> list[Measure]:
    return [measure for measure, _ in MEASURES] + [strongest_other_sink(0), strongest_other_attention(0)]


@pytest.mark.parametrize("measure", everything(), ids=str)
def test_a_measure_stays_in_its_range_or_is_compared_in_logarithms(data, measure):
    facts, found = measure.meaning.facts, read_measure(measure, SCOPE, data)
    found = found[np.isfinite(found)]
    if facts.get("range"):
        low, high = facts["range"]
        assert low <= found.min() <= found.max() <= high
        assert found.max() > 1  # per cent, not a share
        assert facts["unit"] == "percentage points"
    elif facts.get("log"):
        assert found.min() > 0
    else:
        assert facts["unit"] == "nats"


@pytest.mark.parametrize(
    ("measure", "label"),
    [
        (sink_rate(F.key), "heads that sink on key 1 (%)"),
        (sink_rate(F.key + 1, upto(F.forms)), "heads that sink on key 2 (%) in layers 0 to the one in which it forms"),
        (attention_to(0), "attention to key 0 in layer 1, mean over heads (%)"),
        (largest_activation(F.position), "largest |h| at the position"),
        (sink_rate(F.position), "heads that sink on the position (%)"),
        (largest_activation(0, layer(2)), "largest |h| at position 0 in layer 2"),
        (loss(), "loss (nats per token)"),
        (loss(4), "loss (nats per token) from position 4"),
    ],
)
def test_a_label_names_what_is_measured(measure, label):
    assert label_of(measure, SCOPE) == label


def test_a_probe_asks_for_what_the_measures_need():
    probe = probe_of([sink_rate(0), attention_to(1), largest_activation(0), massive_share(0), loss()], SCOPE)
    assert probe == sinkjax.Probe(attention_received=True, resid_max=True, resid_median=True, nll=True)
    assert probe_of([], SCOPE) == sinkjax.Probe()
    later = probe_of([later_sink_rate(0), later_sink_rate(1), later_attention_to(0)], SCOPE)
    assert [statistic.name for statistic in later.extra] == ["sinking_heads", "mean_attention"]


def test_one_statistic_in_two_ways_is_refused():
    """Both would have one name, so that one measure would read the numbers of the other."""
    with pytest.raises(SinkjaxError, match="two measures ask for sinking_heads in different ways"):
        probe_of([later_sink_rate(0), later_sink_rate(0, eps=0.2)], SCOPE)


def test_a_store_without_the_statistic_is_refused(data):
    with pytest.raises(
        SinkjaxError,
        match=r"the measure later_attention_to\(0\) needs 'mean_attention', which its probe does not measure; there is nll",
    ):
        read_measure(later_attention_to(0), SCOPE, data[["nll"]])


@pytest.mark.parametrize(
    ("measure", "sentence"),
    [
        (largest_activation(T), "position 12 of largest_activation.* is beyond prompts of 12 tokens"),
        (sink_rate(T), "key 12 of sink_rate.* is beyond prompts"),
        (sink_rate(F.key + 4), "key 5 of sink_rate.* is seen by fewer than 8 of 12 queries"),
        (attention_to(5), "key 5 of attention_to.* is seen by fewer"),
    ],
)
def test_a_position_that_prompts_do_not_have_is_refused(measure, sentence):
    with pytest.raises(SinkjaxError, match=sentence):
        check_positions(measure, SCOPE)
    check_positions(sink_rate(4), SCOPE)
    check_positions(largest_activation(T - 1), SCOPE)


@pytest.mark.parametrize(
    ("read", "sentence"),
    [
        (lambda data: data["attention_received"].values, "needs 'attention_received', which its probe does not measure; .*nll"),
        (lambda data: 3.0, "'own' must return a real number for each of 2 conditions and 3 prompts, not float64 of shape .."),
        (lambda data: None, "not object of shape"),
        (lambda data: "3", "not <U1 of shape"),
        (lambda data: data["nll"].values, f"not float32 of shape .2, 3, {T}"),
        (lambda data: data["nll"].values.mean(axis=0), f"not float32 of shape .3, {T}"),
        (lambda data: data["nll"].values.mean(axis=-1) + 1j, "not complex64"),
        (lambda data: data["nll"].values[..., T], f"measure own fails: IndexError: index {T} is out of bounds"),
        (lambda data: data["nll"].mean("place"), "measure own fails: ValueError: 'place' not found"),
    ],
)
def test_a_measure_that_cannot_read_its_probe_is_refused_before_the_sweep(tiny_config, read, sentence):
    @Measure.define(label="own", unit="", asks=("nll",))
    def own(data):
        return read(data)

    @Measure.define(label="median", unit="", asks=("nll",))
    def median(data):
        return data["nll"].median("position")

    scope = Scope(SimpleNamespace(length=T, dtype="float32"), tiny_config)
    check_measure(median(), scope, probe_of([median()], scope))
    with pytest.raises(SinkjaxError, match=sentence):
        check_measure(own(), scope, probe_of([own()], scope))
