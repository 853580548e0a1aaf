"""Measures on numbers made by hand, against numpy written out: values, ranges, units, names, what they ask for."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax import mask_key
from sinkjax.errors import SinkjaxError
from sinkjax.study import (
    ALL,
    Layers,
    Measure,
    Sweep,
    attention_to,
    largest_activation,
    layer,
    loss,
    own,
    sink_rate,
    strongest_other_attention,
    upto,
)
from sinkjax.study.measures import (
    later_attention_to,
    later_sink_rate,
    merged,
    read_measure,
    strongest_later_attention,
    strongest_other_sink,
    typical_activation,
)
from sinkjax.study.numbers import Numbers
from sinkjax.study.parts import check_measure
from sinkjax.study.work import UNEDITED, Condition

E, P, L, H, T = 2, 3, 4, 5, 12  # conditions, prompts, layers, heads, positions
SHORT = 9  # tokens of the last prompt; keys and positions beyond are missing
KEYS = range(T - 7)  # those that at least 8 of 12 queries see
FORMS = upto(1, "the one in which it forms")


@pytest.fixture(scope="module")
def data() -> xarray.Dataset:
    rng = np.random.default_rng(0)
    received, sizes = rng.uniform(0, 0.6, (E, P, L, H, T)), rng.uniform(1, 300, (E, P, L + 1, T))
    nll, heads = rng.uniform(1, 5, (E, P, T)), rng.uniform(0, 1, (E, P, L, T))
    received[:, -1, ..., SHORT:], sizes[:, -1, ..., SHORT:], nll[:, -1, SHORT - 1 :], nll[..., -1] = (np.nan,) * 4
    return xarray.Dataset(
        {
            "attention_received": (("edit", "prompt", "layer", "head", "key"), received),
            "sinking_heads": (("edit", "prompt", "layer", "key"), heads),
            "mean_attention": (("edit", "prompt", "layer", "key"), heads / 2),
            "resid_max": (("edit", "prompt", "depth", "position"), sizes),
            "nll": (("edit", "prompt", "position"), nll),
        }
    )


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


MEASURES: dict[str, tuple[Measure, Any]] = {
    one.name: (one, numbers)
    for one, numbers in (
        (sink_rate(0, 0.3), lambda x: sinks(x, range(L), 0)),
        (sink_rate(2, 0.3, layer(2)), lambda x: sinks(x, [2], 2)),
        (sink_rate(0, 0.5, FORMS), lambda x: sinks(x, [0, 1], 0, 0.5)),
        (later_sink_rate(3, 0.3), lambda x: 100 * np.mean([x["sinking_heads"].values[layer, 3] for layer in range(L)])),
        (later_sink_rate(3, 0.3, FORMS), lambda x: 100 * x["sinking_heads"].values[[0, 1], 3].sum() / 2),
        (attention_to(0, 1), lambda x: 100 * received(x, [1], 0).mean()),
        (later_attention_to(2, 0), lambda x: 100 * x["mean_attention"].values[0, 2]),
        (
            strongest_later_attention(1, 1),
            lambda x: 100 * max(x["mean_attention"].values[1, key] for key in range(T - 8) if key != 1),
        ),
        (largest_activation(0), lambda x: largest(x, range(L + 1), 0)),
        (largest_activation(3, layer(0)), lambda x: largest(x, [1], 3)),
        (largest_activation(3, Layers("layers from 2 on", (2, 3))), lambda x: largest(x, [3, 4], 3)),
        (typical_activation(), lambda x: typical(x, range(L + 1))),
        (typical_activation(layer(2)), lambda x: typical(x, [3])),
        (loss(), lambda x: mean_loss(x, 0)),
        (loss(4), lambda x: mean_loss(x, 4)),
    )
}


@pytest.mark.parametrize(("measure", "one"), MEASURES.values(), ids=[*MEASURES])
def test_a_measure_is_its_definition_and_stays_in_its_range(data, measure, one):
    found = read_measure(measure, data)
    expected = [[one(data.isel(edit=edit, prompt=prompt)) for prompt in range(P)] for edit in range(E)]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    found = found[np.isfinite(found)]
    if measure.range is not None:
        low, high = measure.range
        assert low <= found.min() <= found.max() <= high
        assert found.max() > 1  # per cent, not a share
        assert (measure.unit, measure.log) == ("percentage points", False)
    else:
        assert (measure.unit, measure.log) == (("nats", False) if measure.name.startswith("loss") else ("", True))


def test_the_strongest_other_key_is_one_that_eight_queries_see(data):
    whole = data.isel(prompt=slice(2))
    rates, shares = strongest_other_sink(0, 0.3), strongest_other_attention(2, 1)
    for edit in range(E):
        for prompt in range(2):
            x = whole.isel(edit=edit, prompt=prompt)
            assert read_measure(rates, whole)[edit, prompt] == max(sinks(x, range(L), key) for key in KEYS if key != 0)
            found = [100 * received(x, [1], key).mean() for key in KEYS if key != 2]
            assert read_measure(shares, whole)[edit, prompt] == pytest.approx(max(found))
    far = whole.copy(deep=True)
    far["attention_received"][..., len(KEYS) :] = 1.0  # keys that too few queries see
    for measure in (rates, shares):
        np.testing.assert_array_equal(read_measure(measure, whole), read_measure(measure, far))


def test_statistics_of_later_queries_leave_out_the_query_at_the_key(tiny_config, tiny_params):
    """Against the maps of attention, for prompts of two lengths."""
    tokens, lengths = np.random.default_rng(0).integers(0, tiny_config.vocab_size, (2, 10)), np.array([10, 7])
    measures = (later_attention_to(2, 1), later_sink_rate(2, 0.15, layer(1)))
    probe = functools.reduce(merged, (one.asks for one in measures), sinkjax.Probe(attention=(*range(tiny_config.layers),)))
    record = sinkjax.forward(tiny_params, tokens, tiny_config, (), probe, lengths).record
    made = {
        name: (("edit", "prompt", "layer", "key"), np.asarray(record[name])[None]) for name in ("mean_attention", "sinking_heads")
    }
    maps = np.asarray(record["attention"])[:, 1]  # prompt, head, query, key
    means = np.array([[maps[row, head, 3:length, 2].mean() for head in range(6)] for row, length in enumerate(lengths)])
    found = [read_measure(one, xarray.Dataset(made))[0] for one in measures]
    np.testing.assert_allclose(found[0], 100 * means.mean(1), rtol=1e-5)
    np.testing.assert_allclose(found[1], 100 * (means > 0.15).mean(1), rtol=1e-5)
    assert 0 < (means > 0.15).mean() < 1


def test_a_measure_of_an_axis_reads_each_condition_and_its_controls_at_their_own_value(data):
    sweep = Sweep("axes", {ALL.at(spot=3): mask_key(3), ALL.at(spot=5): mask_key(5)})
    rows = ["no edit", "spot 3", "spot 5", "control 0 of spot 5: key 4 masked"]
    sizes = np.arange(4 * T, dtype=float).reshape(4, 1, 1, T) + 1
    store = xarray.Dataset({"resid_max": (("edit", "prompt", "depth", "position"), sizes)}, {"edit": rows})
    points = {
        "axes": sweep.conditions(),
        "axes-controls": [Condition(UNEDITED), Condition(UNEDITED, ALL.at(spot=5), 0)],
    }
    kept = {"axes": store.isel(edit=slice(3)), "axes-controls": store.isel(edit=[0, 3])}
    read, measure = Numbers(None, None, kept, points.__getitem__), own("spot", largest_activation)
    read._conditions["axes-controls"] = tuple(points["axes-controls"])
    cases = [point.case for point in points["axes"]]
    assert [read.value(measure, sweep, case).item() for case in cases] == [1 + 3, 1 + T + 3, 1 + 2 * T + 5]
    assert [read.value(measure, sweep, case, edited=False).item() for case in cases] == [1 + 3, 1 + 3, 1 + 5]
    drawn = [read.drawn(measure, sweep, case) for case in cases]
    assert drawn[:2] == [None, None]
    np.testing.assert_array_equal(drawn[2], [[1 + 3 * T + 5]])


def test_a_probe_asks_for_what_the_measures_need():
    def asked(*measures: Measure) -> sinkjax.Probe:
        return functools.reduce(merged, (one.asks for one in measures), sinkjax.Probe())

    massive = Measure("massive", lambda data: data["resid_median"], sinkjax.Probe(resid_max=True, resid_median=True))
    probe = asked(sink_rate(0, 0.3), attention_to(1, 0), largest_activation(0), massive, loss())
    assert probe == sinkjax.Probe(attention_received=True, resid_max=True, resid_median=True, nll=True)
    assert asked() == sinkjax.Probe()
    later = asked(later_sink_rate(0, 0.3), later_sink_rate(1, 0.3), later_attention_to(0, 0), strongest_later_attention(0, 0))
    assert [statistic.name for statistic in later.extra] == ["sinking_heads", "mean_attention"]
    for other in (later_sink_rate(0, 0.2), later_sink_rate(0, 0.3, shares=True)):
        # Both would have one name, so that one measure would read the numbers of the other.
        with pytest.raises(SinkjaxError, match=r"two measures .*sinking_heads"):
            asked(later_sink_rate(0, 0.3), other)


@pytest.mark.parametrize(
    ("read", "sentence"),
    [
        (lambda data: data["attention_received"].values, "'own' .*attention_received.*; .*nll"),
        (lambda data: 3.0, "'own' .*2 conditions and 3 prompts, not float64"),
        (lambda data: None, "not object of shape"),
        (lambda data: "3", "not <U1 of shape"),
        (lambda data: data["nll"].values, f"not float32 of shape .2, 3, {T}"),
        (lambda data: data["nll"].values.mean(axis=0), f"not float32 of shape .3, {T}"),
        (lambda data: data["nll"].values.mean(axis=-1) + 1j, "not complex64"),
        (lambda data: data["nll"].values[..., T], f"'own' .*IndexError: index {T} "),
        (lambda data: data["nll"].mean("place"), "'own' .*ValueError: 'place'"),
    ],
)
def test_a_measure_that_cannot_read_its_probe_is_refused_before_the_sweep(tiny_config, read, sentence):
    probe, lab = (
        sinkjax.Probe(nll=True),
        SimpleNamespace(architecture=tiny_config, settings=SimpleNamespace(length=T, dtype="float32")),
    )
    given: Any = lab
    check_measure(Measure("median", lambda data: data["nll"].median("position"), probe), given, probe)
    check_measure(attention_to(0, 9), given, sinkjax.Probe(attention_received=True))  # absent from this model
    with pytest.raises(SinkjaxError, match=sentence):
        check_measure(Measure("own", read, probe), given, probe)
