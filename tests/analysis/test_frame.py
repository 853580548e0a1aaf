"""A tidy table holds what the metrics and the statistics say, with the labels of the result."""

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.analysis import intervals, metrics
from sinkjax.analysis.frame import METRICS
from sinkjax.errors import SinkjaxError
from sinkjax.probes.record import Record, to_dataset

SIZES = {"edit": 2, "prompt": 8, "layer": 3, "head": 4, "depth": 4, "position": 6, "key": 6, "token": 5}
DIMS = {
    "attention_received": ("prompt", "layer", "head", "key"),
    "resid_max": ("prompt", "depth", "position"),
    "resid_median": ("prompt", "depth", "position"),
    "resid_norm": ("prompt", "depth", "position"),
    "nll": ("prompt", "position"),
    "logits_of": ("prompt", "token"),
}
LABELS = {"edit": ["none", "mask"], "prompt": list("abcdefgh")}


@pytest.fixture
def model(tiny_config, tiny_params) -> sinkjax.Model:
    return sinkjax.Model(tiny_config, tiny_params, None, {})


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    values = {name: rng.random((2, *(SIZES[axis] for axis in axes))) * 300 for name, axes in DIMS.items()}
    values["attention_received"] /= 300
    return to_dataset(Record(values, DIMS), LABELS)


OPTIONS = {
    "sink_rate_among": {"where": np.arange(48).reshape(8, 6) % 2 == 0, "min_queries": 1},
    "logit_difference": {"right": np.arange(8) % 5, "wrong": 2},
}


@pytest.mark.parametrize("measure", METRICS)
def test_every_row_is_a_value_of_the_metric_at_its_labels(data, measure):
    options = OPTIONS.get(measure, {})
    frame = sinkjax.to_frame(data, measure, over=None, **options)
    wanted = getattr(metrics, measure)(data, **options)
    assert len(frame) == wanted.size
    axes = [name for name in frame if name != measure]
    assert axes[:2] == ["edit", "prompt"]
    for row in frame.sample(20, random_state=0, replace=True).itertuples(index=False):
        labels = dict(zip(axes, row, strict=False))
        place = [LABELS[axis].index(label) if axis in LABELS else label for axis, label in labels.items()]
        np.testing.assert_array_equal(row[-1], wanted[tuple(place)])


@pytest.mark.parametrize(("per", "axes"), [("prompt", []), ("layer", ["layer"]), ("head", ["layer", "head"])])
def test_means_over_prompts_have_the_intervals_of_the_library(data, per, axes):
    frame = sinkjax.to_frame(data, "sink_rate", key=1, per=per, level=0.9)
    assert list(frame) == ["edit", *axes, "mean", "low", "high", "n"]
    found = intervals.intervals(metrics.sink_rate(data, 1, per=per), 1, level=0.9)
    rows = frame.set_index(["edit", *axes]).sort_index()
    for place in np.ndindex(found.shape):
        one, row = found[place], rows.loc[(LABELS["edit"][place[0]], *place[1:]) if axes else LABELS["edit"][place[0]]]
        np.testing.assert_array_equal(
            [row["mean"], row["low"], row["high"], row["n"]],
            [np.nan if x is None else x for x in (one.mean, one.low, one.high, one.n)],
        )


@pytest.mark.parametrize(("chosen", "clusters"), [(slice(8, None), [1, 1, 2, 2, 3, 3, 3, 3]), (slice(None), None)])
def test_prompts_of_one_document_are_clustered(data, chosen, clusters):
    """A store has 16 prompts; eight of them are in the table, by their numbers, or all, and then by letters."""
    documents = [*range(8), *(clusters or [0] * 8)]
    few = data.assign_coords(prompt=np.arange(16)[chosen] if clusters else LABELS["prompt"])
    frame = sinkjax.to_frame(few.assign_attrs(study={"documents": documents}), "sink_rate", key=1)
    found = intervals.intervals(metrics.sink_rate(data, 1), 1, clusters=clusters)
    np.testing.assert_array_equal(frame[["low", "high"]], np.stack([found.low, found.high], axis=-1))


def test_a_statistic_is_a_measure_too_and_any_axis_can_be_averaged(data):
    frame = sinkjax.to_frame(data, "resid_max", over="position")
    assert list(frame) == ["edit", "prompt", "depth", "mean", "low", "high", "n"]
    np.testing.assert_allclose(frame["mean"], data["resid_max"].values.mean(-1).ravel())
    assert set(frame["prompt"]) == set(LABELS["prompt"])


def test_coordinates_of_edits_are_coordinates_of_the_result_and_columns(model, tmp_path):
    edits = [
        sinkjax.compose(label="none"),
        *(sinkjax.mask_key(0, layers=layer).named(f"mask {layer}", layer=layer, kind="mask") for layer in (0, 1)),
    ]
    tokens = np.arange(24).reshape(2, 12) % model.config.vocab_size
    data = sinkjax.sweep(model, tokens, edits, out=tmp_path / "a.zarr", progress=False)
    for found in (data, xarray.open_zarr(tmp_path / "a.zarr", chunks=None)):
        assert {"edit_layer", "edit_kind"} <= set(found.coords)
        np.testing.assert_array_equal(found["edit_layer"], [np.nan, 0, 1])
        assert found["edit_kind"].values.tolist() == ["", "mask", "mask"]
    for measure, options in (("sink_rate", {}), ("attention_received", {}), ("sink_rate", {"over": None})):
        frame = sinkjax.to_frame(data, measure, **options)
        assert list(frame)[:3] == ["edit", "edit_kind", "edit_layer"]
        assert set(frame.loc[frame["edit_layer"] == 1, "edit"]) == {"mask 1"}
    assert sinkjax.sweep(model, tokens, edits, out=tmp_path / "a.zarr", progress=False).equals(data)
    moved = [edits[0], edits[1], edits[2].named("mask 1", layer=2, kind="mask")]
    with pytest.raises(SinkjaxError, match=r"contains another sweep \(coordinates\.edit_layer"):
        sinkjax.sweep(model, tokens, moved, out=tmp_path / "a.zarr", progress=False)
