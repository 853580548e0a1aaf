"""Studies as values: equal after YAML, the types of their settings, prose from the config file, and what is refused."""

from __future__ import annotations

import dataclasses
from typing import Any, get_args, get_type_hints

import pytest

from sinkjax.config_files import documents
from sinkjax.errors import SinkjaxError
from sinkjax.studies.as_yaml import from_yaml, to_yaml, with_prose
from sinkjax.studies.config import StudyConfig
from sinkjax.studies.declaration import Setting
from sinkjax.studies.registry import as_value, studies
from sinkjax.studies.scope import Contrast
from sinkjax.studies.settings import config_type, filled
from sinkjax.studies.vocabulary import *
from sinkjax.studies.words import Field

VALUES = [name for name in studies() if isinstance(as_value(name), Study)]
MASKS = grid(mask_key(F.key))
SINK, LOSS, SIZE = effect(sink_rate(F.key), at("masks")), effect(loss(), at("masks")), largest_activation(0)


def study(**parts: Any) -> Study:
    return Study(**{"name": "mine/one", "settings": {"key": 0}, "grids": {"masks": MASKS}, **parts})


# YAML.


@pytest.mark.parametrize("name", VALUES)
def test_a_study_is_equal_after_yaml(name):
    value = as_value(name)
    text = to_yaml(value)
    again = from_yaml(text)
    assert again == value
    assert hash(again) == hash(value)
    assert to_yaml(again) == text  # 1 is not 1.0, and not True
    assert config_type(again) is config_type(value)


def test_every_part_is_in_the_document():
    value = study(
        title="The title of {key}",
        question="Why: so?",
        notes=("First, with: a colon", "{second}"),
        settings={"key": setting(2, "the key"), "shares": (0.5, 1.0), "plain": True, "prompts": 9},
        needs=("softmax",),
        known={"forms": onset(largest_activation(F.key))},
        grids={"masks": grid(mask_key(F.key), upto(F.forms) | ALL, over={"way": ("a", "b")}, title="t"), "text": grid(bos="own")},
        controls={"masks": draws(mask_key(random_position(but=F.key)))},
        measures=(sink_rate(F.key), loss()),
        claims={
            "one": Claim(
                contrast=SINK, source="s", sign=-1, given=reaches(loss(), "masks", 3.5), beside=(SINK,), statement="a", paper="9%"
            ),
            "two": Claim(contrast=same(loss(), at("masks"), at("masks", ALL), 0.001)),
            "three": Claim(contrast=SINK, stays=True),
        },
        figures=(lines((loss(),), over="masks"), maps((at("masks", ALL),), tokens=8)),
    )
    assert from_yaml(to_yaml(value)) == value
    for part in dataclasses.fields(Study):
        if part.name not in ("name", "computations", "trainings"):
            assert from_yaml(to_yaml(dataclasses.replace(value, **_without(part.name)))) != value, part.name


def _without(part: str) -> dict[str, Any]:
    """Another value for one part of a study; for a part that others name, a changed one."""
    changed: dict[str, Any] = {
        "settings": {"key": setting(2, "another key"), "shares": (0.5, 1.0), "plain": True, "prompts": 9},
        "grids": {"masks": grid(mask_key(F.key + 1), upto(F.forms) | ALL, over={"way": ("a", "b")}), "text": grid()},
        "known": {"forms": onset(sink_rate(F.key))},
    }
    return {part: changed.get(part, "" if part in ("title", "question") else {} if part in ("controls", "claims") else ())}


def test_a_table_keeps_its_order():
    value = study(grids={"b": grid(), "a": grid(), "masks": MASKS})
    assert [*from_yaml(to_yaml(value)).grids] == ["b", "a", "masks"]


def test_a_list_of_one_may_be_written_without_brackets():
    assert from_yaml("{study: a/b, grids: {text: grid}, measures: loss}").measures == (loss(),)


# Settings.


def test_a_config_has_the_defaults_types_and_help_that_a_study_states():
    value = study(
        settings={"key": setting(2, "the key"), "rate": 0.5, "way": "a", "on": False, "spots": setting([1, 4]), "prompts": 9}
    )
    config = config_type(value)
    assert issubclass(config, StudyConfig)
    made = config()
    assert (made.key, made.rate, made.way, made.on, made.spots, made.prompts, made.length) == (2, 0.5, "a", False, (1, 4), 9, 64)
    hints = get_type_hints(config)
    types = {name: hints[name] for name in ("key", "rate", "way", "on", "spots", "prompts")}
    assert types == {"key": int, "rate": float, "way": str, "on": bool, "spots": tuple[int, ...], "prompts": int}
    assert "the key" in str(get_args(get_type_hints(config, include_extras=True)["key"]))
    assert dataclasses.is_dataclass(config)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.key = 3


@pytest.mark.parametrize(
    ("parts", "names"),
    [
        ({}, set()),
        ({"measures": (sink_rate(0),)}, {"eps"}),
        ({"controls": {"masks": draws(mask_key(random_position()))}}, {"controls", "control_prompts"}),
        ({"known": {"forms": onset(largest_activation(0))}}, {"control_prompts"}),
        ({"claims": {"a": Claim(contrast=effect(loss(), at("masks")))}}, {"twin", "control_prompts"}),
        ({"claims": {"a": Claim(contrast=same(loss(), at("masks"), at("masks"), 0.1))}}, set()),
        ({"figures": (maps((at("masks"),)),)}, {"map_layers"}),
    ],
)
def test_shared_settings_are_there_if_words_need_them(parts, names):
    found = set(documents.fields(config_type(study(**parts))())) - set(documents.fields(StudyConfig()))
    assert found == {"key"} | names


def test_a_study_may_change_the_default_of_a_shared_setting():
    value = study(settings={"key": 0, "eps": 0.2, "controls": 7}, measures=(sink_rate(0),))
    config = config_type(value)()
    assert (config.eps, config.controls) == (0.2, 7)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"key": -1}, "key must be at least 0"),
        ({"key": "one"}, "key"),
        ({"spots": (1, -4)}, "spots has -4; layers, positions and counts start at 0"),
        ({"eps": 1.5}, "eps must lie between 0 and 1"),
        ({"controls": 0}, "controls must be at least 1"),
        ({"control_prompts": 0}, "control_prompts must be at least 1"),
        ({"prompts": 0}, "prompts must be at least 1"),
        ({"length": 1}, "length must be at least 2"),
        ({"map_layers": (-1,)}, "map_layers has -1"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(fields, sentence):
    value = study(
        settings={"key": 0, "spots": (1, 2)},
        controls={"masks": draws(mask_key(random_position()))},
        measures=(sink_rate(0),),
        figures=(maps((at("masks"),)),),
    )
    with pytest.raises(SinkjaxError, match=sentence):
        config_type(value)(**fields)


def test_a_setting_that_no_command_line_can_hold_is_refused():
    with pytest.raises(SinkjaxError, match="mine/one: key must be a number, a text, a truth value or a list of these, not None"):
        config_type(study(settings={"key": setting(None)}))


# Prose.

PROSE = {
    "title": "Masked\n   twice",
    "question": "Q?",
    "notes": ["one\ntwo"],
    "claims": {"a": "It\n falls.", "b": {"statement": "It rises.", "paper": "12.5%"}},
}


def test_prose_is_laid_over_a_declaration():
    value = study(claims={"a": Claim(contrast=SINK, source="Fig. 1"), "b": Claim(contrast=LOSS, paper="old")})
    found = with_prose(value, PROSE, "a file")
    assert (found.title, found.question, found.notes) == ("Masked twice", "Q?", ("one two",))
    claims = dict(found.claims)
    assert (claims["a"].statement, claims["a"].source) == ("It falls.", "Fig. 1")
    assert (claims["b"].statement, claims["b"].paper) == ("It rises.", "12.5%")
    assert with_prose(value, {}, "a file") == value


@pytest.mark.parametrize(
    ("prose", "sentence"),
    [
        ({"tittle": "a"}, r"a file: prose: unknown key 'tittle' \(did you mean 'title'\?\)"),
        ({"claims": {"aa": "b"}}, r"a file: prose: unknown claim 'aa' \(did you mean 'a'\?\); allowed: a, b"),
        ({"claims": {"a": {"statment": "b"}}}, r"a file: prose: .*unknown key 'statment' \(did you mean 'statement'\?\)"),
        ({"claims": {"a": {"sign": "-1"}}}, "a file: prose: .*unknown key 'sign'"),
    ],
)
def test_prose_of_nothing_is_refused(prose, sentence):
    with pytest.raises(SinkjaxError, match=sentence):
        with_prose(study(claims={"a": Claim(contrast=SINK), "b": Claim(contrast=LOSS)}), prose, "a file")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("key {key} of {spots}", "key 3 of 1, 2"),
        ("{other} stays", "{other} stays"),
        ("so do { and {} and {key:02d}", "so do { and {} and {key:02d}"),
    ],
)
def test_settings_stand_in_texts(text, found):
    assert filled(text, {"key": 3, "spots": (1, 2)}) == found


@pytest.mark.parametrize("name", VALUES)
def test_the_texts_of_a_study_name_its_own_settings(name):
    value = as_value(name)
    known = vars(config_type(value)())
    texts = [value.title, value.question, *value.notes, *(claim.statement for claim in value.claims.values())]
    assert "{" not in filled(" ".join(texts), known)


# Refusals.


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ({"grids": {}}, "mine/one: a study needs a grid, a computation or a training"),
        ({"measures": (mask_key(0),)}, r"mine/one: measures takes measures, not mask_key\(0\)"),
        ({"grids": {"masks": mask_key(0)}}, r"mine/one: grids takes grids, not mask_key\(0\)"),
        ({"known": {"forms": loss()}}, "mine/one: known takes known numbers, not loss"),
        ({"figures": (loss(),)}, "mine/one: figures takes figures, not loss"),
        ({"claims": {"a": SINK}}, "mine/one: claims takes claims, not effect"),
        ({"controls": {"masks": MASKS}}, "mine/one: controls takes"),
        ({"controls": {"mask": draws(mask_key(0))}}, r"unknown grid of controls 'mask' \(did you mean 'masks'\?\)"),
        ({"measures": (sink_rate(F.kay),)}, r"unknown field 'kay' \(did you mean 'key'\?\)"),
        ({"claims": {"a": Claim(contrast=effect(loss(), at("mask")))}}, r"unknown grid 'mask' \(did you mean 'masks'\?\)"),
        ({"figures": (lines((loss(),), over="mask"),)}, "unknown grid 'mask'"),
        ({"claims": {"a": Claim(contrast=SINK, given=reaches(loss(), "mask", 1))}}, "unknown grid 'mask'"),
        ({"claims": {"a": Claim(contrast=SINK, beside=(effect(loss(), at("mask")),))}}, "unknown grid 'mask'"),
        ({"claims": {"a": Claim(contrast=effect(loss(), at("masks", fixed={"kee": 1})))}}, "unknown axis of masks 'kee'"),
        ({"claims": {"a": Claim(contrast=slope(loss(), at("masks"), "kee"))}}, "slope: unknown axis of masks 'kee'"),
        ({"figures": (lines((loss(),), over="masks", x="kee"),)}, "lines: unknown axis of masks 'kee'"),
        ({"figures": (lines((loss(),), over="masks", by="kee"),)}, "lines: unknown axis of masks 'kee'"),
        ({"figures": (heatmap((loss(),), over="masks", axis="kee"),)}, "heatmap: unknown axis of masks 'kee'"),
        ({"settings": {"key": 0, "promts": 8}}, r"unknown setting 'promts' \(did you mean 'prompts'\?\)"),
        ({"settings": {"key": 0, "twins": False}}, r"unknown setting 'twins' \(did you mean 'twin'\?\)"),
        ({"figures": (lines((loss(),), over={"upto": 1}),)}, "mine/one: lines: over takes the name of a grid: masks"),
        ({"measures": (sink_rate(Field("half_depth")),)}, r"half_depth is a word, not a field: write it without \$"),
        *(
            ({"claims": {"a": Claim(contrast=one, stays=True)}}, f"claim a: stays needs a whole, and {one.word} here has none")
            for one in (slope(loss(), at("masks"), "key"), effect(SIZE, at("masks")), unedited(loss(), "masks"))
        ),
    ],
)
def test_a_study_that_makes_no_sense_is_refused(parts, sentence):
    with pytest.raises(SinkjaxError, match=sentence):
        study(**parts)


def test_an_axis_may_be_named_by_measures():
    value = study(grids={"masks": grid(mask_key(F.spot), over={"spot": (1, 2)})}, measures=(sink_rate(F.spot),))
    assert {one.name for one in value.words if isinstance(one, Field)} == {"spot", "eps", "bos", "prompts"}


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"contrast": loss()}, "a claim needs a contrast, an identity or described numbers, not loss"),
        ({"contrast": SINK, "sign": 0}, "the sign of a claim must be 1 or -1, not 0"),
        ({"contrast": SINK, "given": SINK}, "the premise of a claim must be a premise, not effect"),
        ({"contrast": SINK, "beside": (loss(),)}, "beside takes contrasts, not loss"),
    ],
)
def test_a_claim_that_makes_no_sense_is_refused(fields, sentence):
    with pytest.raises(SinkjaxError, match=sentence):
        Claim(**fields)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("grids: {text: grid}", "the study lacks the key 'study'"),
        ("{study: a/b, grid: {}}", r"unknown key 'grid' \(did you mean 'grids'\?\)"),
        ("{study: a/b, name: c, grids: {text: grid}}", "unknown key 'name'"),
        (
            "{study: a/b, grids: {t: grid}, settings: {c: {vale: 1}}}",
            r"settings\.c: unknown key 'vale' \(did you mean 'value'\?\)",
        ),
        ("{study: a/b, grids: {t: grid}, settings: {c: {help: a}}}", r"settings\.c lacks the key 'value', its default"),
        ("{study: a/b, grids: {t: grid}, settings: {lenght: 8}}", r"unknown setting 'lenght' \(did you mean 'length'\?\)"),
        ("{study: a/b, grids: [grid]}", "the study: grids must be a mapping of names to values"),
        ("{study: a/b, grids: {text: grid}, claims: [a]}", "the study: claims must be a mapping of names to values"),
        ("{study: a/b, grids: {text: grids}}", r"the study: grids\.text: unknown grid 'grids' \(did you mean 'grid'\?\)"),
        ("{study: a/b, grids: {text: grid}, claims: {a: {contrast: {effekt: 1}}}}", r"claims\.a\.contrast: unknown contrast"),
        ("{study: a/b, grids: {text: grid}, claims: {a: {contrasts: 1}}}", r"claims\.a: unknown key 'contrasts'"),
        (
            "{study: a/b, grids: {text: grid}, claims: {a: {statement: b}}}",
            r"claims\.a takes one of contrast, identity, described",
        ),
        (
            "{study: a/b, grids: {t: grid}, claims: {a: {contrast: {unedited: {measure: loss, grid: t}},"
            " identity: {same: {measure: loss, one: {at: t}, other: {at: t}, within: 1}}}}}",
            "takes one of contrast, identity, described",
        ),
        ("{study: a/b, grids: {text: grid}, claims: {a: {contrast: {unedited: {measure: loss, grid: text}}, sign: 2}}}", "sign"),
        ("study: [", "not valid YAML|line 1"),
    ],
)
def test_a_document_that_is_no_study_is_refused(text, sentence):
    with pytest.raises(SinkjaxError, match=sentence):
        from_yaml(text)


def test_a_number_may_be_named_bare():
    text = "{study: a/b, grids: {text: {grid: {edit: {mask_key: 0}, layers: {upto: %s}}}}}"
    assert from_yaml(text % "half_depth") == from_yaml(text % "{half_depth: {}}")


def test_a_position_that_is_text_is_refused():
    with pytest.raises(SinkjaxError, match=r"key of .* is a position, not 'all'"):
        config_type(from_yaml("{study: a/b, grids: {text: grid}, measures: [{sink_rate: all}]}"))()


def test_a_setting_is_a_value_with_or_without_help():
    text = "{study: a/b, grids: {text: grid}, settings: {a: 1, b: {value: [1, 2], help: what}, c: {value: x}}}"
    assert dict(from_yaml(text).settings) == {"a": Setting(1), "b": Setting((1, 2), "what"), "c": Setting("x")}


def test_a_claim_may_read_any_kind_of_word():
    assert isinstance(SINK, Contrast)
    assert Claim(contrast=SINK).words == (SINK,)
    premise = reaches(loss(), "masks", 1)
    assert Claim(contrast=SINK, given=premise, beside=(SINK,)).words == (SINK, premise, SINK)
