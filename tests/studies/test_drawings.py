"""Figures as words: what they draw, before it is drawn."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.analysis.estimates import Absent
from sinkjax.report.figures import layers as picture
from sinkjax.studies.drawings import own_words, shared_words
from sinkjax.studies.grids import matching
from sinkjax.studies.pictures import received
from sinkjax.studies.places import ALL, each, prefixes
from sinkjax.studies.readouts import attention_to, strongest_other_attention
from sinkjax.studies.scope import Scope
from sinkjax.studies.vocabulary import at, by_layer, grid, lines, loss, mask_key, sink_rate


def test_columns_of_received_attention_are_at_the_last_edited_layer(monkeypatch):
    L, length = 6, 12
    architecture = SimpleNamespace(layers=L, heads=2)
    scope = Scope(SimpleNamespace(length=length, bos="none", prompts=2, seed=0, key=0), architecture)
    points = scope.get(grid(mask_key(0), each | prefixes | ALL))
    labels = [point.label for point in points]
    rows = np.arange(len(points), dtype=float)
    values = np.broadcast_to(rows[:, None, None, None, None], (len(points), 2, L, 2, length)) / 100
    data = xarray.Dataset({"attention_received": (("edit", "prompt", "layer", "head", "key"), values)}, {"edit": labels})
    data = data.assign_coords(key=np.arange(length))
    drawn = {}
    monkeypatch.setattr(picture, "received", lambda found, xlabel: drawn.update(found))
    read = SimpleNamespace(points=lambda over: points, results={"masks": data}, scope=scope, drawing=lambda *rest, **more: None)
    word = received((0,), over="masks")
    word.meaning.of(read, **word.given)
    (panels,) = drawn.values()
    for title in ("one layer", "layers 0 to l"):
        found = panels[title]
        assert found.shape == (L, L)
        for x in range(L):
            wanted = {x} if title == "one layer" else set(range(x + 1))
            label = next(point.label for point in points[1:] if layers_of(point.edit, L) == wanted)
            np.testing.assert_allclose(found[x], labels.index(label) / 100)


def test_lines_of_a_panel_are_named_by_what_differs():
    assert own_words(["heads that sink on key 0 (%)", "heads that sink on key 1 (%)"]) == ["key 0", "key 1"]
    assert own_words(["loss of text (nats)"]) == ["loss of text (nats)"]
    assert own_words(["sink rate", "loss"]) == ["sink rate", "loss"]


@pytest.mark.parametrize("word", [received((0,), over="masks"), lines(attention_to(0, 0), over="masks")])
def test_two_layers_make_no_line(word):
    """All that two layers give are two points of one series and one of the other."""
    scope = Scope(SimpleNamespace(length=12, bos="none", prompts=2, seed=0), SimpleNamespace(layers=2, heads=2))
    points = scope.get(grid(mask_key(0), each | prefixes | ALL))
    read = SimpleNamespace(points=lambda over: points, results={"masks": {"attention_received": None}}, scope=scope)
    with pytest.raises(Absent, match="masks has no 3 sets of layers"):
        word.meaning.of(read, **word.given)


def test_attention_in_a_layer_that_the_model_lacks_is_absent():
    received_by = np.random.default_rng(0).random((2, 3, 2, 4, 12))  # edit, prompt, layer, head, key
    data = xarray.Dataset({"attention_received": (("edit", "prompt", "layer", "head", "key"), received_by)})
    np.testing.assert_allclose(attention_to(0, 1).meaning.of(data, 0, 1), 100 * received_by[..., 1, :, 0].mean(axis=-1))
    for word in (attention_to, strongest_other_attention):
        with pytest.raises(Absent, match="the model has no layer 2, as it has 2"):
            word(0, 2).meaning.of(data, 0, 2)


@pytest.mark.parametrize(("way", "drawn"), [(("self", "even", "all"), ["self", "even", "all"]), ((8, 1, 4), [1, 4, 8])])
def test_names_keep_their_order_along_an_axis_and_numbers_are_sorted(monkeypatch, way, drawn):
    scope = Scope(SimpleNamespace(length=12, bos="none", prompts=2, seed=0, key=0), SimpleNamespace(layers=4, heads=2))
    points = scope.get(grid(mask_key(0), over={"way": way}, title="keys hidden"))
    panels, captions = [], []
    monkeypatch.setattr(picture, "lines", lambda found, xlabel, **more: panels.extend(found[0]))
    read = SimpleNamespace(
        points=lambda over: points,
        results=SimpleNamespace(clusters=lambda *rest: None, sweeps={"masks": SimpleNamespace(prefix="keys hidden")}),
        scope=scope,
        store=str,
        name=lambda measure: "loss",
        value=lambda measure, over, row, edited=True: np.full(8, row),
        drawing=lambda name, figure, caption, *rest: captions.append(caption),
    )
    word = lines(loss(), over="masks", x="way")
    word.meaning.of(read, **word.given)
    (line,) = panels[0].lines
    assert line.x == drawn
    assert [interval.mean for interval in line.values] == [1 + way.index(one) for one in drawn]
    assert captions == ["Keys hidden: loss, against way. Dashed: no edit."]


def test_measures_that_share_a_row_have_a_panel_for_each_condition(monkeypatch):
    scope = Scope(SimpleNamespace(length=12, bos="none", prompts=2, seed=0, key=0), SimpleNamespace(layers=3, heads=2))
    points = scope.get(grid(mask_key(0), title="keys hidden"))
    rows = []
    monkeypatch.setattr(picture, "lines", lambda found, xlabel, **more: rows.extend(found))
    read = SimpleNamespace(
        points=lambda over: points,
        results=SimpleNamespace(clusters=lambda *rest: None),
        scope=scope,
        store=str,
        rows=lambda one: matching(points, one, scope),
        where=lambda one: "key 0 hidden",
        name=lambda measure: f"heads that sink on key {measure.given['key']} (%)",
        value=lambda measure, over, row, edited=True: np.full(8, 10.0 * measure.given["key"] + edited),
        drawing=lambda *rest: None,
    )
    word = by_layer(((sink_rate(0), sink_rate(1)),), at("masks"))
    word.meaning.of(read, **word.given)
    ((plain, edited),) = rows
    assert (plain.title, edited.title) == ("no edit", "key 0 hidden")
    for panel, added in ((plain, 0), (edited, 1)):
        assert [line.name for line in panel.lines] == ["0 (%)", "1 (%)"]
        assert [[value.mean for value in line.values] for line in panel.lines] == [[added] * 3, [10 + added] * 3]


def layers_of(edit: sinkjax.Edit, L: int) -> set[int]:
    """The layers that an edit acts in."""
    (term,) = edit.terms
    return set(np.arange(L)[slice(None) if term.layers is None else list(term.layers)].tolist())


@pytest.mark.parametrize(
    ("names", "label"),
    [
        (("heads that sink on key 0 (%)", "heads that sink on the position (%)"), "heads that sink"),
        (("heads that sink on key 0 (%)", "heads that sink on key 12 (%)"), "heads that sink on key"),
        (("heads that sink on key 1 (%)", "heads that sink on key 12 (%)"), "heads that sink on key"),
        (("loss", "norm"), ""),
    ],
)
def test_a_shared_axis_ends_with_a_noun(names, label):
    assert shared_words(names) == label
