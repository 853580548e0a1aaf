"""Places and grids: which layers and heads each word stands for, which edits and labels a grid makes, and its random controls."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import sinkjax
from sinkjax.errors import SinkjaxError
from sinkjax.studies.grids import Draws, Grid, Point, cells_of, controls, matching
from sinkjax.studies.scope import Scope
from sinkjax.studies.study import Inputs
from sinkjax.studies.vocabulary import *
from tests.studies.edited import assert_same

T = 16
CONFIG = SimpleNamespace(
    key=2, position=5, positions=(3, 7), shares=(0.2, 0.5, 0.9), length=T, prompts=8, controls=12, seed=0, bos="none", model="m"
)
EVERYWHERE = "all layers"


@pytest.fixture(scope="module")
def scope(tiny_config) -> Scope:
    """Three layers of six heads; the activation forms in layer 1, and head 4 of layer 2 receives most."""
    return Scope(CONFIG, tiny_config, {"forms": 1, "attention": np.roll(np.arange(18.0)[::-1], 16)})


def layers_of(scope: Scope, place: Any) -> list[list[int]]:
    return [[layer for layer, head in found.cells if head is None] for found in scope.places(place)]


@pytest.mark.parametrize(
    ("place", "layers", "labels"),
    [
        (ALL, [[0, 1, 2]], [EVERYWHERE]),
        (each, [[0], [1], [2]], ["layer 0", "layer 1", "layer 2"]),
        (prefixes, [[0, 1]], ["layers 0 to 1"]),
        (layer(1), [[1]], ["layer 1"]),
        (layer(F.forms), [[1]], ["the layer in which it forms"]),
        (layer((0, 2, 9)), [[0], [2]], ["layer 0", "layer 2"]),
        (upto(0), [[0]], ["layer 0"]),
        (upto((0, 1, 2, 9)), [[0], [0, 1]], ["layer 0", "layers 0 to 1"]),
        (upto(F.forms), [[0, 1]], ["layers 0 to the one in which it forms"]),
        (between(1, 2), [[1, 2]], ["layers 1 to 2"]),
        (after(F.forms), [[2]], ["layers after the one in which it forms"]),
        (after(2), [[2]], ["layers from 3 on"]),
        (each | prefixes | ALL, [[0], [1], [2], [0, 1], [0, 1, 2]], None),
    ],
    ids=str,
)
def test_a_place_is_its_layers(scope, place, layers, labels):
    assert layers_of(scope, place) == layers
    if labels is not None:
        assert [found.label for found in scope.places(place)] == labels


def test_every_single_set_of_a_series_has_a_word_of_its_own(scope):
    for series in (each, prefixes, upto((0, 1)), layer((0, 2)), top(F.attention, F.shares), first_heads(F.shares)):
        for found in scope.places(series):
            ((again),) = scope.places(found.place)
            assert (again.cells, again.label) == (found.cells, found.label)


def test_heads_are_whole_layers_many_the_strongest_or_the_first(scope):
    strongest = [found.cells for found in scope.places(top(F.attention, F.shares))]
    first = [found.cells for found in scope.places(first_heads(F.shares))]
    assert [len(cells) for cells in strongest] == [len(cells) for cells in first] == [6, 12]  # not none, and not all
    assert strongest[0] == ((2, 4), (2, 5), (0, 0), (0, 1), (0, 2), (0, 3))
    assert first[0] == tuple((0, head) for head in range(6))


def test_a_measure_takes_the_layers_of_a_place_and_not_an_empty_one(scope):
    assert scope.layers(between(1, 2)) == [1, 2]
    with pytest.raises(SinkjaxError, match=r"layer\(\(9,\)\) has no layers in a model of 3"):
        scope.layers(layer((9,)))


# Grids against the constructors of sinkjax.


def assert_different(one: sinkjax.Edit, other: sinkjax.Edit, architecture: Any) -> None:
    with pytest.raises(AssertionError):
        assert_same(one, other, architecture)


SWAPPED = np.arange(T)
SWAPPED[[2, 5]] = [5, 2]
WORDS: list[tuple[Any, Any]] = [  # a word, and what it stands for with key 2 and position 5 in some layers
    (mask_key(F.key), lambda layers: sinkjax.mask_key(2, layers=layers)),
    (mask_key((0, F.key)), lambda layers: sinkjax.mask_key([0, 2], layers=layers)),
    (attend_self(F.position), lambda layers: sinkjax.attend_self(5, layers=layers)),
    (add_logit(F.key, -1.5), lambda layers: sinkjax.add_logit(2, -1.5, layers=layers)),
    (drop_mlp(F.position), lambda layers: sinkjax.drop_mlp(5, layers=layers)),
    (
        scale_head_output(F.position, 2.0, "dims"),
        lambda layers: sinkjax.scale_head_output(5, 2.0, centre="dims", layers=layers),
    ),
    (set_residual(F.position, 3.0, dims=(1, 4)), lambda layers: sinkjax.set_residual(5, 3.0, dims=[1, 4], layers=layers)),
    (shift_positions(key=4), lambda layers: sinkjax.shift_positions(key=4, layers=layers)),
    (swap_indices(F.key, F.position), lambda layers: sinkjax.set_positions(SWAPPED, SWAPPED, layers=layers)),
    (
        see_only(F.position, F.key),
        lambda layers: sinkjax.edit("logits", "set", -np.inf, queries=5, keys=[0, 1, 3, 4, 5], layers=layers),
    ),
    (
        window(4, 1),
        lambda layers: sinkjax.edit("logits", "set", -np.inf, keys=slice(1, None), distances=slice(3, None), layers=layers),
    ),
    (hide("logits", keys=F.key), lambda layers: sinkjax.mask_key(2, layers=layers)),
    (
        hide("weights", queries=F.position),
        lambda layers: sinkjax.edit("weights", "set", 0.0, queries=5, relation="others", layers=layers),
    ),
    (
        hide("renormalised", keys=F.key),
        lambda layers: sinkjax.edit("weights", "set", 0.0, keys=2, relation="others", renormalise=True, layers=layers),
    ),
    (
        edit("mlp_out", "scale", 0.5, queries=F.position),
        lambda layers: sinkjax.edit("mlp_out", "scale", 0.5, queries=5, layers=layers),
    ),
    (
        compose((mask_key(F.key), drop_mlp(F.position))),
        lambda layers: sinkjax.compose(sinkjax.mask_key(2, layers=layers), sinkjax.drop_mlp(5, layers=layers)),
    ),
]


@pytest.mark.parametrize(("word", "constructor"), WORDS, ids=lambda value: str(value) if isinstance(value, EditWord) else "")
def test_a_grid_makes_the_edits_that_the_constructors_make(scope, word, constructor):
    none, *points = scope.get(grid(word, each | upto(F.forms) | ALL))
    assert none.edit.terms == ()
    assert [point.label for point in points] == [
        "layer 0", "layer 1", "layer 2", "layers 0 to the one in which it forms", EVERYWHERE
    ]  # fmt: skip
    for point, layers in zip(points, (0, 1, 2, [0, 1], None), strict=True):
        assert_same(point.edit, constructor(layers), scope.architecture)
        assert point.label == point.edit.label
    assert_different(points[0].edit, constructor(1), scope.architecture)


def test_embeddings_have_no_layers(scope):
    _, point = scope.get(grid(swap_embeddings(0, F.position), layer(1)))
    assert_same(point.edit, sinkjax.swap_embeddings(0, 5), scope.architecture)


def test_a_mask_in_some_heads_hides_the_key_from_these_alone(scope):
    _, six, twelve = scope.get(grid(mask_key(F.key), heads=top(F.attention, F.shares)))
    assert [point.x for point in (six, twelve)] == [6, 12]
    by_layer = {2: [4, 5], 0: [0, 1, 2, 3]}
    (term,) = six.edit.resolve(scope.architecture, [T], T)
    assert term.op == "add"  # 0 elsewhere, which changes nothing
    hidden = np.isneginf(np.asarray(term.value)[:, 0]) & np.asarray(term.layer_head)
    assert {(int(layer), int(head)) for layer, head in np.argwhere(hidden)} == {
        (layer, head) for layer, heads in by_layer.items() for head in heads
    }
    assert set(np.unique(np.asarray(term.value))) == {-np.inf, 0.0}
    (plain,) = sinkjax.mask_key(2).resolve(scope.architecture, [T], T)
    np.testing.assert_array_equal(term.key, plain.key)
    assert term.relation == plain.relation


def test_only_masks_act_in_chosen_heads(scope):
    with pytest.raises(SinkjaxError, match="only masks of logits act in chosen heads, not an edit at MLP_OUT"):
        scope.get(grid(drop_mlp(3), heads=first_heads(0.5)))


@pytest.mark.parametrize("places", [{"layers": layer(0)}, {"layers": prefixes}, {"heads": first_heads(0.5)}])
def test_an_edit_with_layers_of_its_own_does_not_move_to_those_of_a_grid(scope, places):
    word = mask_key(F.key, layers=2)
    with pytest.raises(SinkjaxError, match="the edit at LOGITS has layers of its own, so it cannot also act in the places of a"):
        scope.get(grid(word, **places))
    _, point = scope.get(grid(word))
    assert_same(point.edit, sinkjax.mask_key(2, layers=2), scope.architecture)


def test_axes_are_multiplied_and_named(scope):
    word = grid(add_logit(F.spot, F.strength), layer(0) | ALL, over={"spot": F.positions, "strength": (-1.5, 2.0)})
    _, *points = scope.get(word)
    assert [dict(point.bound) for point in points[:4]] == [
        {"spot": spot, "strength": strength} for spot in (3, 7) for strength in (-1.5, 2.0)
    ]
    assert [point.label for point in points[:2]] == ["spot 3, strength -1.5 in layer 0", "spot 3, strength 2 in layer 0"]
    assert [point.x for point in points[:4]] == [-1.5, 2.0, -1.5, 2.0]
    assert [point.place for point in points] == [layer(0)] * 4 + [ALL] * 4
    assert len({point.label for point in points}) == 8
    assert_same(points[2].edit, sinkjax.add_logit(7, -1.5, layers=0), scope.architecture)
    assert_same(points[7].edit, sinkjax.add_logit(7, 2.0), scope.architecture)


def test_one_axis_in_all_layers_is_labelled_by_the_axis_alone(scope):
    _, *points = scope.get(grid(mask_key(F.spot), over={"spot": F.positions}))
    assert [point.label for point in points] == ["spot 3", "spot 7"]


@pytest.mark.parametrize("places", [each | prefixes | ALL, each | upto((0, 1)) | upto(F.forms) | ALL])
def test_labels_are_unique_where_places_coincide(scope, places):
    """In a model of three layers "layer 0" is the first layer and the first prefix."""
    labels = [point.label for point in scope.get(grid(mask_key(0), places))]
    assert len(set(labels)) == len(labels)


def test_the_series_of_a_grid_with_an_axis_are_named_in_words(scope):
    _, *points = scope.get(grid(mask_key(F.place), each | upto((0, 1)) | upto(F.forms) | ALL, over={"place": (3, 4)}))
    assert list(dict.fromkeys(point.series for point in points)) == [
        "one layer", "several layers", "layers 0 to the one in which it forms", EVERYWHERE
    ]  # fmt: skip


def test_a_grid_without_an_edit_is_the_unedited_model(scope):
    (point,) = scope.get(grid(bos="none"))
    assert (point.label, point.edit.terms, point.place) == ("no edit", (), None)


def test_a_grid_says_on_what_it_runs(scope):
    from sinkjax.studies.grids import inputs_of

    assert inputs_of(grid(), scope) == Inputs("text", "none")
    named = dataclasses.replace(scope, config=SimpleNamespace(**{**vars(CONFIG), "bos": 7}))
    assert inputs_of(grid(inputs="random", bos="own"), named) == Inputs("random", 7)


# Choices of conditions.


def chosen(scope: Scope, word: Grid, choice: At) -> list[str]:
    points = scope.get(word)
    return [points[row].label for row in matching(points, choice, scope)]


def test_conditions_are_chosen_by_place_and_axes(scope):
    word = grid(mask_key(F.spot), layer(0) | ALL, over={"spot": F.positions})
    assert chosen(scope, word, at("a")) == [
        "spot 3 in layer 0",
        "spot 7 in layer 0",
        "spot 3 in all layers",
        "spot 7 in all layers",
    ]
    assert chosen(scope, word, at("a", ALL)) == ["spot 3 in all layers", "spot 7 in all layers"]
    assert chosen(scope, word, at("a", layer(0), {"spot": 7})) == ["spot 7 in layer 0"]
    assert chosen(scope, grid(mask_key(0), each), at("a", layer(last_layer()))) == [f"layer {scope.architecture.layers - 1}"]
    assert chosen(scope, word, at("a", fixed={"spot": F.key + 1})) == ["spot 3 in layer 0", "spot 3 in all layers"]
    assert chosen(scope, grid(), at("a")) == ["no edit"]
    for choice in (at("a", layer(1)), at("a", fixed={"spot": 4}), at("a", fixed={"sport": 3})):
        with pytest.raises(
            SinkjaxError, match=r"no condition of the grid is \{at: \{grid: a, .*; it has no edit, spot 3 in layer 0"
        ):
            chosen(scope, word, choice)


# Controls.


def drawn(scope: Scope, word: Grid, random: Draws, **settings: Any) -> list[Point]:
    """The controls of every condition of a grid, without no edit."""
    here = dataclasses.replace(scope, config=SimpleNamespace(**{**vars(scope.config), **settings}))
    points = here.get(word)
    none, *found = controls(random, "stream", points, range(1, len(points)), cells_of(word, here), here)
    assert none.edit.terms == ()
    return found


MASKS = grid(mask_key(F.key), layer(1) | ALL)
OTHERS = draws(mask_key(random_position(but=(F.key, F.key + 1))))


def test_controls_mask_other_keys_in_the_same_layers(scope):
    found = drawn(scope, MASKS, OTHERS)
    for place, layers in ((layer(1), 1), (ALL, None)):
        mine = [point for point in found if point.place == place]
        assert [point.draw for point in mine] == list(range(12))
        keys = [point.edit.terms[0].keys for point in mine]
        assert len(set(keys)) == 12
        assert not {(2,), (3,), (T - 1,)} & set(keys)
        for point in mine:
            assert_same(point.edit, sinkjax.mask_key(list(point.edit.terms[0].keys), layers=layers), scope.architecture)
    assert len({point.label for point in found}) == len(found)


def test_there_are_no_more_controls_than_there_are_other_edits(scope):
    assert len(drawn(scope, grid(mask_key(F.key)), OTHERS, controls=99)) == T - 1 - 2


@pytest.mark.parametrize("fields", [{"seed": 1}, {"controls": 5}, {}])
def test_controls_depend_on_the_seed_and_more_of_them_begin_with_the_same(scope, fields):
    def keys(**settings: Any) -> list[Any]:
        return [point.edit.terms[0].keys for point in drawn(scope, grid(mask_key(F.key)), OTHERS, **settings)]

    same = min(len(keys()), len(keys(**fields)))
    assert (keys()[:same] == keys(**fields)[:same]) == ("seed" not in fields)


def test_controls_in_random_heads_mask_the_key_in_as_many(scope):
    word = grid(mask_key(F.key), heads=top(F.attention, F.shares))
    found = drawn(scope, word, draws(mask_key(F.key), heads="random"))
    masked = {}
    for point in found:
        (term,) = point.edit.terms
        assert term.keys == (2,)
        masked[point.label] = np.isneginf(term.value).sum()
    assert sorted(masked.values()) == [6] * 12 + [12] * 12
    assert len({np.asarray(point.edit.terms[0].value).tobytes() for point in found}) == 24


def test_controls_are_drawn_for_the_axes_of_their_condition(scope):
    word = grid(attend_self(F.spot), over={"spot": (3, 7)})
    for point in drawn(scope, word, draws(cut_links(F.spot))):
        (term,), spot = point.edit.terms, dict(point.bound)["spot"]
        (key,) = term.keys
        assert len(term.queries) == spot  # as many links as the query has to others
        assert min(term.queries) > key != spot
        assert_same(
            point.edit,
            sinkjax.edit("logits", "set", -np.inf, queries=list(term.queries), keys=key, relation="others"),
            scope.architecture,
        )


def test_no_key_has_more_later_queries_than_there_are(scope):
    with pytest.raises(SinkjaxError, match="no key of 16 positions has 16 later queries"):
        drawn(scope, grid(attend_self(F.spot), over={"spot": (15,)}), draws(cut_links(16)))
