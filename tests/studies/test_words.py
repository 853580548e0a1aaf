"""Words and fields: values that are compared, hashed, printed, read in a scope, and written as YAML and read back equal."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sinkjax.config_files import documents
from sinkjax.errors import SinkjaxError
from sinkjax.studies.declaration import Identity, Premise
from sinkjax.studies.grids import Draws, Grid
from sinkjax.studies.scope import Contrast, EditWord, FigureWord, Known, Measure, Place, Scope
from sinkjax.studies.vocabulary import *
from sinkjax.studies.words import Field, Table, Word, frozen, plain, read, words_in

KINDS = [At, Contrast, Draws, EditWord, FigureWord, Grid, Identity, Known, Measure, Number, Place, Premise]
DEPTH = 2  # of random words inside random words
SETTINGS = SimpleNamespace(key=3, positions=(4, 9), length=20, eps=0.3, prompts=2, seed=0)
SCOPE = Scope(SETTINGS, SimpleNamespace(layers=6, heads=4))


# Fields.


def test_numbers_are_added_to_a_field_and_taken_from_it():
    assert F.key + 1 - 1 == F.key
    assert F.key + 2 == Field("key", 2) != F.key
    assert F.key + 1 != F.kay + 1
    assert len({F.key, Field("key"), F.key + 1}) == 2


@pytest.mark.parametrize(
    ("field", "text"), [(F.key, "F.key"), (F.key + 1, "F.key + 1"), (F.key - 2, "F.key - 2"), (F.key + 1 - 1, "F.key")]
)
def test_a_field_is_printed_as_it_is_written_and_as_yaml(field, text):
    assert repr(field) == text
    assert plain(field) == f"${text.removeprefix('F.')}"
    assert read(plain(field), None, "here") == field


def test_hidden_names_are_no_fields():
    """Or copies and notebooks, which look for these, would take `F` for everything."""
    with pytest.raises(AttributeError):
        _ = F._repr_html_


@pytest.mark.parametrize("text", ["key", "$", "$key+1", "$key + one", "a $key", "$key + 1 "])
def test_a_text_that_is_not_quite_a_field_stays_a_text(text):
    assert read(text, None, "here") == text


# Values.


def test_a_word_is_the_call_however_it_is_written():
    assert mask_key(0) == mask_key(key=0)
    assert hash(mask_key(0)) == hash(mask_key(key=0))
    assert grid(mask_key(0), over={"a": [1, 2]}) == grid(mask_key(0), over={"a": (1, 2)})
    assert len({mask_key(0), mask_key(1), mask_key(0, layers=2), add_logit(0, 1.0), mask_key(0)}) == 4


def test_arguments_given_as_their_defaults_are_other_words_with_the_same_meaning():
    assert sink_rate(0) != sink_rate(0, ALL)
    assert sink_rate(0).given == sink_rate(0, ALL).given


def test_words_of_one_name_and_different_kinds_differ():
    @Measure.define("twice")
    def measured(data: Any) -> Any:
        """A measure."""

    @Place.define("twice")
    def place(scope: Any) -> Any:
        """A place."""

    try:
        assert measured() != place()
    finally:
        del Measure.vocabulary["twice"], Place.vocabulary["twice"]


def test_a_word_of_another_module_is_not_overwritten():
    former = Place.vocabulary["after"]
    with pytest.raises(SinkjaxError, match=r"^sinkjax\.studies\.places defines the \w+ 'after' already; choose another name"):

        @Place.define()
        def after(scope: Any) -> Any:
            """Another meaning."""

    assert Place.vocabulary["after"] is former


@pytest.mark.parametrize(
    ("word", "text"),
    [
        (ALL, "all"),
        (mask_key(F.key + 1), "mask_key(F.key + 1)"),
        (add_logit(0, 1.5), "add_logit(0, value=1.5)"),
        (sink_rate(0, upto(F.forms)), "sink_rate(0, layers=upto(F.forms))"),
        (effect(loss(), at("a", ALL)), "effect(loss, where=at('a', place=all))"),
    ],
)
def test_a_word_is_printed_as_a_call(word, text):
    assert repr(word) == text


def test_defaults_are_known_without_being_part_of_the_word():
    assert dict(sink_rate(0).arguments) == {"key": 0}
    assert sink_rate(0).given == {"key": 0, "layers": ALL, "eps": F.eps}


def test_places_are_joined_in_their_order():
    assert each | prefixes | ALL == (each, prefixes, ALL)
    assert each | (prefixes | ALL) == (each, prefixes, ALL)


def test_a_moved_share_is_an_effect_on_what_follows():
    assert moved(sink_rate(0), sink_rate(1), at("a")) == effect(sink_rate(1), at("a"), whole=sink_rate(0))


def test_frozen_values_have_no_lists_left():
    value = frozen({"a": [1, [2, {"b": [3]}]], "c": range(2), "d": "text"})
    assert value == {"a": (1, (2, {"b": (3,)})), "c": (0, 1), "d": "text"}
    assert isinstance(value, Table)
    assert [*value] == ["a", "c", "d"]
    assert hash(value) == hash(frozen(value))
    assert frozen(value) == value
    assert isinstance(frozen(value), Table)


def test_every_word_inside_is_found_with_those_of_defaults():
    word = effect(sink_rate(F.key, upto(F.forms)), at("a", fixed={"position": F.shown}))
    found = set(words_in(word))
    assert {F.key, F.forms, F.shown, F.eps, upto(F.forms), word} <= found
    assert F.kay not in found
    assert set(words_in({"a": [mask_key(0)], "b": F.key})) >= {F.key}


# YAML.


def names() -> st.SearchStrategy[str]:
    return st.sampled_from(["position", "way", "strength", "a b", "text"])


def fields() -> st.SearchStrategy[Field]:
    return st.builds(Field, st.sampled_from(["key", "positions", "eps"]), st.integers(-9, 9))


def values(depth: int) -> st.SearchStrategy[Any]:
    """Plain values, fields, and numbers that are found later; lists and mappings of them."""
    single: Any = st.one_of(
        st.integers(-99, 99), st.floats(allow_nan=False), st.booleans(), st.none(), names(), fields(), words(Number, depth - 1)
    )
    return st.one_of(single, st.lists(single, max_size=3), st.dictionaries(names(), single, max_size=2))


@st.composite
def words(draw: Any, kind: type[Word], depth: int = DEPTH) -> Word:
    """A random word of a kind, with random arguments."""
    simple = [name for name, meaning in kind.vocabulary.items() if depth > 0 or not _must(meaning)]
    name = draw(st.sampled_from(sorted(simple)))
    meaning, arguments = kind.vocabulary[name], []
    for argument, parameter in meaning.signature.parameters.items():
        if parameter.default is parameter.empty or (depth > 0 and draw(st.booleans())):
            inner = meaning.kinds.get(argument)
            if inner is None:
                value = draw(values(depth))
            elif depth > 0 and [one for one in inner.vocabulary.values() if depth > 1 or not _must(one)]:
                value = draw(st.one_of(words(inner, depth - 1), st.lists(words(inner, depth - 1), max_size=2), fields()))
            else:
                value = draw(fields())
            arguments.append((argument, frozen(value)))
    return kind(name, tuple(arguments))


def _must(meaning: Any) -> bool:
    """Whether a word has an argument that must be given."""
    return any(one.default is one.empty for one in meaning.signature.parameters.values())


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
@settings(max_examples=20)
def test_any_word_is_written_and_read_back_equal(kind, data):
    word = data.draw(words(kind))
    node = plain(word)
    assert read(node, kind, "here") == word
    text = documents.parse(f"word: {_flow(node)}", "here")["word"]
    found = read(text, kind, "here")
    assert found == word
    assert repr(found) == repr(word)  # 1 is not 1.0, and not True
    assert hash(found) == hash(word)


def _flow(node: Any) -> str:
    import yaml

    text: str = yaml.dump(node, Dumper=documents.Dumper, default_flow_style=True, width=10**6, sort_keys=False)
    return text.removesuffix("\n...\n")


@given(value=values(DEPTH))
def test_any_plain_value_is_written_and_read_back_equal(value):
    value = frozen(value)
    assert read(plain(value), None, "here") == value


@pytest.mark.parametrize(
    ("node", "kind", "word"),
    [
        ("all", Place, ALL),
        ({"upto": 3}, Place, upto(3)),
        (["each", "all"], Place, (each, ALL)),
        ({"mask_key": "$key + 1"}, EditWord, mask_key(F.key + 1)),
        ({"sink_rate": {"key": 0, "layers": {"upto": "$forms"}}}, Measure, sink_rate(0, upto(F.forms))),
        ({"effect": {"measure": "loss", "where": {"at": "a"}}}, Contrast, effect(loss(), at("a"))),
        ({"onset": {"largest_activation": 0}}, Known, onset(largest_activation(0))),
        ({"draws": {"edit": {"mask_key": {"random_position": 0}}}}, Draws, draws(mask_key(random_position(0)))),
        ({"attention_to": {"key": 0, "layer": {"last_layer": {}}}}, Measure, attention_to(0, Number("last_layer"))),
    ],
)
def test_the_short_forms_of_yaml(node, kind, word):
    assert read(node, kind, "here") == word


# Refusals.


@pytest.mark.parametrize(
    ("node", "kind", "sentence"),
    [
        ({"mask_keys": 0}, EditWord, r"here: unknown edit 'mask_keys' \(did you mean 'mask_key'\?\)"),
        ("sink_rat", Measure, r"here: unknown measure 'sink_rat' \(did you mean 'sink_rate'\?\)"),
        ({"sink_rate": {"kei": 0}}, Measure, r"here: sink_rate: unknown argument 'kei' \(did you mean 'key'\?\)"),
        ({"sink_rate": {"layers": "all"}}, Measure, "here: sink_rate: missing a required argument: 'key'"),
        ({"sink_rate": {"key": 0, "layers": {"mask_key": 0}}}, Measure, r"here\.layers: unknown place 'mask_key'"),
        ({"sink_rate": {"key": 0, "layers": 3}}, Measure, r"here\.layers takes a place, such as layer, not '3'"),
        ([{"mask_key": 0}, {"mask": 0}], EditWord, r"here\[1\]: unknown edit 'mask'"),
        ({"a": 0, "b": 0}, EditWord, "here takes an edit, such as add_logit, not"),
        ({"effect": {"measure": {"effect": "loss"}, "where": {"at": "a"}}}, Contrast, r"here\.measure: unknown measure 'effect'"),
        (None, Measure, "here takes a measure"),
    ],
)
def test_a_node_that_is_no_such_word_is_refused(node, kind, sentence):
    with pytest.raises(SinkjaxError, match=sentence):
        read(node, kind, "here")


@pytest.mark.parametrize(
    ("write", "sentence"),
    [
        (lambda: mask_key(), "mask_key: missing a required argument: 'key'"),
        (lambda: mask_key(0, kei=1), "mask_key: got an unexpected keyword argument 'kei'"),
        (lambda: sink_rate(0, ALL, 0.3, 4), "sink_rate: too many positional arguments"),
        (lambda: sink_rate(0, layers=mask_key(0)), r"sink_rate: layers takes a place, not mask_key\(0\)"),
        (lambda: sink_rate(0, layers=3), "sink_rate: layers takes a place, not 3"),
        (lambda: effect(mask_key(0), at("a")), r"effect: measure takes a measure, not mask_key\(0\)"),
        (lambda: maps((at("a"), ALL)), "maps: conditions takes a choice of conditions, not all"),
        (lambda: mask_key(sink_rate(0)), r"mask_key: key takes a value, not the measure sink_rate\(0\)"),
        (lambda: grid(mask_key(0), over={"a": (1, ALL)}), "grid: over takes a value, not the place all"),
    ],
)
def test_a_word_with_wrong_arguments_is_refused_where_it_is_written(write, sentence):
    with pytest.raises(SinkjaxError, match=sentence):
        write()


# Values that are found later.


def test_a_field_is_an_axis_before_a_known_number_before_a_setting():
    known = Scope(SETTINGS, None, {"key": 5})
    assert [scope.get(F.key + 1) for scope in (SCOPE, known, known.at({"key": 7}))] == [4, 6, 8]
    assert known.at({"key": 7}).at({"way": "a"}).get((F.key, F.way)) == (7, "a")


def test_a_field_without_a_value_is_refused_with_the_nearest():
    with pytest.raises(SinkjaxError, match=r"unknown field 'kei' \(did you mean 'key'\?\)"):
        SCOPE.get(F.kei)
    assert SCOPE.knows(F.key)
    assert SCOPE.knows(3)
    assert not SCOPE.knows(F.kei)


def test_values_are_read_all_the_way_down():
    assert SCOPE.get(frozen({"a": [F.key, [F.positions]], "b": percent(F.eps)})) == {"a": (3, ((4, 9),)), "b": 30.0}


@pytest.mark.parametrize(("layers", "half", "last"), [(28, 13, 27), (30, 14, 29), (3, 0, 2), (1, 0, 0)])
def test_numbers_follow_from_the_architecture(layers, half, last):
    scope = Scope(SETTINGS, SimpleNamespace(layers=layers))
    assert scope.get(half_depth()) == half
    assert scope.get(last_layer()) == last


def test_random_positions_are_all_that_are_left_and_never_the_last():
    scope = Scope(SETTINGS, None, rng=np.random.default_rng(0))

    def drawn(word: Number) -> set[int]:
        return {scope.get(word) for _ in range(400)}

    assert drawn(random_position()) == set(range(19))
    assert drawn(random_position(but=(F.key, F.key + 1), least=1)) == set(range(1, 19)) - {3, 4}
    assert drawn(random_position(but=0, below=F.key)) == {1, 2}
    with pytest.raises(SinkjaxError, match="no position below 3 is left for a control"):
        scope.get(random_position(but=(0, 1, 2), below=F.key))
