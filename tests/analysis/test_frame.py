"""A tidy table holds what the metrics and the statistics say, with the labels of the result."""

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.analysis import intervals, metrics
from sinkjax.analysis.frame import METRICS
from sinkjax.errors import SinkjaxError
from sinkjax.probes.record import Record, to_dataset

SIZES = {"edit": 2, "prompt": 8, "layer": 3, "head": 4, "depth": 4, "position": 6, "key": 6, "query": 6, "token": 5}
SIZES |= {"kv_head": 2, "head_dim": 3}
DIMS = {
    "attention_received": ("prompt", "layer", "head", "key"),
    "attention": ("prompt", "layer", "head", "query", "key"),
    "attention_self": ("prompt", "layer", "head", "query"),
    "values": ("prompt", "layer", "position", "kv_head", "head_dim"),
    "value_norm": ("prompt", "layer", "kv_head", "position"),
    "resid_first_cosine": ("prompt", "depth", "position"),
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
    **{name: {"out": np.ones((3, 4, 3, 5)), "min_queries": 1} for name in METRICS if name.startswith("sink_kind")},
}


@pytest.mark.parametrize("measure", METRICS)
def test_every_row_is_a_value_of_the_metric_at_its_labels(data, measure):
    options = OPTIONS.get(measure, {})
    name, _, field = measure.partition(".")
    data = data.isel(edit=0, drop=True) if name == "sink_kind" else data  # it takes no edits
    frame = sinkjax.to_frame(data, measure, over=None, **options)
    wanted = getattr(metrics, name)(data, **options)
    wanted = getattr(wanted, field) if field else wanted
    assert len(frame) == wanted.size
    axes = [name for name in frame if name != measure]
    assert axes[: 1 + (name != "sink_kind")] == ["edit", "prompt"][name == "sink_kind" :]
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


def test_fields_that_name_something_have_no_mean(data):
    places = sinkjax.to_frame(data, "largest_activation.position")
    assert [*places] == ["edit", "prompt", "depth", "largest_activation.position"]
    assert len(places) == 2 * 8 * 4
    assert [*sinkjax.to_frame(data, "largest_activation.value")] == ["edit", "depth", "mean", "low", "high", "n"]
    with pytest.raises(SinkjaxError, match=r"names something, so it has no mean: pass over=None"):
        sinkjax.to_frame(data, "largest_activation.position", over="prompt")


def test_a_whole_result_has_the_labels_along_each_axis():
    """As `attribute` returns it: nodes with a site and a layer each, and one variable of fewer axes."""
    coords = {"node": ["a", "b"], "layer": ("node", [3, 1]), "prompt": [5, 7]}
    nodes = xarray.Dataset({"gap": (("node", "prompt"), [[1, 2], [3, 4]]), "baseline": ("prompt", [8, 9])}, coords)
    frame = sinkjax.to_frame(nodes)
    assert frame.to_dict("list") == {
        "node": ["a", "a", "b", "b"],
        "layer": [3, 3, 1, 1],
        "prompt": [5, 7, 5, 7],
        "gap": [1, 2, 3, 4],
        "baseline": [8, 9, 8, 9],
    }
    means = sinkjax.to_frame(nodes, "gap")
    assert [*means] == ["node", "layer", "mean", "low", "high", "n"]
    assert means["mean"].tolist() == [1.5, 3.5]
    with pytest.raises(SinkjaxError, match="baseline has the axes prompt, and gap node: name the measure, one of gap, baseline"):
        sinkjax.to_frame(xarray.Dataset({"gap": ("node", [1, 2]), "baseline": ("prompt", [8, 9])}))


def test_an_evaluation_is_a_table_of_its_texts(model):
    from sinkjax.evaluation import Evaluation

    found = Evaluation(np.log(np.array([[2.0, 8.0, np.nan], [4.0, 4.0, 4.0], [32.0, np.nan, np.nan]])), np.array([0, 0, 1]))
    frame = sinkjax.to_frame(found)
    np.testing.assert_allclose(frame["loss"], [np.log(4), np.log(32)])
    assert frame["tokens"].tolist() == [5, 1]
    assert frame["text"].tolist() == [0, 1]
    np.testing.assert_allclose(sinkjax.to_frame(found, "loss", over="text")["mean"], [np.log(128) / 2])


def test_a_section_and_trainings_are_tables_of_their_rows():
    from types import SimpleNamespace

    from sinkjax.analysis.intervals import Interval
    from sinkjax.analysis.summary import Row

    values = [Interval(float(k), k - 1.0, k + 1.0, 9, 0, 0.95, "t") for k in range(2)]
    rows = tuple(Row(f"mask {k}", "", measure, value) for k, value in enumerate(values) for measure in "ab")
    frame = sinkjax.to_frame(SimpleNamespace(rows=rows), "b")
    assert frame["condition"].tolist() == ["mask 0", "mask 1"]
    assert frame["value.mean"].tolist() == [0, 1]
    assert len(sinkjax.to_frame(SimpleNamespace(rows=rows))) == 4
    with pytest.raises(SinkjaxError, match="unknown measure 'c'; allowed: a, b"):
        sinkjax.to_frame(SimpleNamespace(rows=rows), "c")
    runs = (SimpleNamespace(labels=lambda: {"seed": 3, "outcome": "converged"}),)
    assert sinkjax.to_frame(SimpleNamespace(runs=runs)).to_dict("list") == {"seed": [3], "outcome": ["converged"]}
