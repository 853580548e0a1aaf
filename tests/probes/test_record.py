"""A record: a dict of arrays that is a pytree, names what is missing, and becomes a labelled dataset."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sinkjax
from sinkjax import Capture, Probe, Record, SinkjaxError, Site, mask_key, to_dataset
from sinkjax.probes.statistics import BUILT_IN


@pytest.fixture
def record() -> Record:
    return Record(
        {"resid_max": np.zeros((2, 4, 5)), "nll": np.ones((2, 5))},
        {"resid_max": ("prompt", "depth", "position"), "nll": ("prompt", "position")},
    )


def test_it_is_a_pytree_that_keeps_its_dims(record: Record) -> None:
    doubled = jax.jit(lambda record: jax.tree.map(lambda x: 2 * x, record))(record)
    assert isinstance(doubled, Record)
    assert doubled.dims == record.dims
    np.testing.assert_array_equal(doubled["nll"], 2.0)
    stacked = jax.vmap(lambda scale: jax.tree.map(lambda x: scale * x, record))(jnp.arange(3.0))
    assert stacked["resid_max"].shape == (3, 2, 4, 5)


def test_a_missing_statistic_is_an_error_that_says_how_to_get_it(record: Record) -> None:
    with pytest.raises(sinkjax.errors.MissingStatistic, match=r"'resid_min' .*resid_max.*Probe\(resid_min=True\)"):
        record["resid_min"]
    assert {KeyError, SinkjaxError} <= {*sinkjax.errors.MissingStatistic.__mro__}
    assert "resid_min" not in record
    assert record.get("resid_min") is None


def test_a_dataset_has_the_axes_of_the_record(tiny_params, tiny_config) -> None:
    probe = Probe(
        **dict.fromkeys([*BUILT_IN, "nll"], True),
        attention=(0, 2),
        capture=(Capture(Site.RESID, layers=(1,), positions=(0, 3), dims=(4,)), Capture(Site.KEY, name="k"), Capture(Site.EMBED)),
    )
    record = sinkjax.forward(tiny_params, np.arange(12).reshape(2, 6), tiny_config, mask_key(0), probe).record
    dataset = to_dataset(record, {"prompt": ["a", "b"], "layer": [10, 11, 12], "attention_layer": [0, 2]})
    assert set(dataset.data_vars) == set(record)
    for name, array in record.items():
        assert dataset[name].dims == record.dims[name]
        np.testing.assert_array_equal(dataset[name], array)
    sizes = {"prompt": 2, "layer": 3, "depth": 4, "head": 6, "kv_head": 2, "attention_layer": 2}
    sizes |= dict.fromkeys(("key", "query", "position"), 6)
    assert sizes.items() <= dict(dataset.sizes).items()
    assert list(dataset.coords["prompt"].values) == ["a", "b"]
    assert list(dataset.coords["depth"].values) == [0, 1, 2, 3]
    assert (
        float(dataset["attention_received"].sel(prompt="b", layer=11, head=3, key=2)) == record["attention_received"][1, 1, 3, 2]
    )


def test_a_sweep_has_one_more_axis_in_front(record: Record) -> None:
    swept = Record({name: np.stack([array] * 3) for name, array in record.items()}, record.dims)
    dataset = to_dataset(swept, {"edit": ["none", "mask", "swap"]})
    assert dataset["nll"].dims == ("edit", "prompt", "position")
    assert dataset.sizes["edit"] == 3
