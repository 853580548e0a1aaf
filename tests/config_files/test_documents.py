"""YAML becomes a typed config, or one sentence."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, fields
from typing import ClassVar, Literal

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from sinkjax.config_files import documents
from sinkjax.errors import SinkjaxError
from sinkjax.study.registry import Chosen, choose, find, read
from sinkjax.tasks.language_model.config import Pretrain

Mask = find("kiya/mask").settings


@dataclass(frozen=True)
class Sample:
    count: int
    rate: float = 0.5
    name: str | None = None
    kind: Literal["a", "b"] | int = "a"
    layers: tuple[int, ...] = ()
    flag: bool = False


def build(text: str) -> Sample:
    return documents.build(Sample, documents.parse(text, "file"), "file")


def test_values_keep_their_types():
    assert build("{count: 3, rate: 1, name: null, kind: 7, layers: [0, 2], flag: true}") == Sample(3, 1.0, None, 7, (0, 2), True)
    assert isinstance(build("{count: 3, rate: 1}").rate, float)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{count: 1, rat: 2}", "'rat' .*'rate'"),
        ("{rate: 1}", "lacks the key 'count'"),
        ("{count: true}", "count .*integer, not True"),
        ("{count: 1, kind: c}", "kind .*'a' or 'b' or .*integer, .*'c'"),
        ("{count: 1, layers: [0, x]}", r"layers\[1\] .*integer, .*'x'"),
        ("{count: 1, flag: 1}", "flag .*true or false, not 1"),
        ("- 1", "must hold keys and values"),
        ("", "must hold keys and values"),
        ("{1: 2}", "must hold keys and values"),
        ("count: 2001-99-99", "not valid YAML"),
        ("count: !!python/object:os.system {}", "'tag:yaml.org,2002:python/object:os.system' .*line 1"),
    ],
)
def test_what_is_wrong_is_named(text: str, words: str):
    with pytest.raises(SinkjaxError, match=words) as error:
        build(text)
    assert str(error.value).startswith("file")
    assert "\n" not in str(error.value)


def test_an_alias_and_a_merge_are_read():
    assert documents.parse("a: &a {x: 1}\nb: {<<: *a, y: 2}\nc: *a", "file") == {
        "a": {"x": 1},
        "b": {"x": 1, "y": 2},
        "c": {"x": 1},
    }


@pytest.mark.parametrize("end", range(1, 400, 7))
def test_a_run_does_not_read_the_config_of_a_run_that_is_cut(tmp_path, end):
    whole = documents.write("kiya/mask", Mask())
    (tmp_path / "config.yaml").write_text(whole)
    assert choose(str(tmp_path)).config == Mask()
    (tmp_path / "config.yaml").write_text(whole[:-end])
    with pytest.raises(SinkjaxError, match=re.escape(str(tmp_path))):
        choose(str(tmp_path))


@given(
    prompts=st.integers(1, 10**6),
    text=st.text(),
    bos=st.sampled_from(["model", "none"]) | st.integers(0, 10**6),
    eps=st.floats(0, 1, exclude_min=True, exclude_max=True),
    layers=st.lists(st.integers(0, 99)),
)
@example(prompts=1, text="a\x85 b\u2028", bos="model", eps=0.5, layers=[])  # YAML's own line breaks
def test_a_written_config_reads_back_as_itself(prompts, text, bos, eps, layers):
    config = Mask(prompts=prompts, control_prompts=1, text=text, bos=bos, eps=eps, map_layers=tuple(layers))
    assert read(documents.write("kiya/mask", config), "file") == Chosen("kiya/mask", config)


class Reader11(yaml.SafeLoader):
    """A reader of YAML 1.1 that takes `y` for true, which PyYAML does not, and exponents without a dot or sign for numbers."""


class Reader12(yaml.SafeLoader):
    """A reader of YAML 1.2 (its core schema)."""

    yaml_implicit_resolvers: ClassVar[dict] = {}


for reader, tag, pattern in (
    (Reader11, "bool", "[yYnN]"),
    (Reader11, "float", r"[-+]?([0-9][0-9_]*(\.[0-9.]*)?|\.[0-9.]*)([eE][-+]?[0-9]+)?"),
    (Reader12, "null", "null|Null|NULL|~|"),
    (Reader12, "bool", "true|True|TRUE|false|False|FALSE"),
    (Reader12, "int", "[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"),
    (Reader12, "float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"),
):
    reader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"({pattern})$"), None)

like_other_things = st.text(alphabet="0123456789+-._:eExobyntfaN~=<", max_size=6) | st.sampled_from(
    ["0E0", "1e5", "0o7", "1_0", "1:30", "2001-01-01", "y", "N", "on", "Off", "yes", "True", "null", "~", "=", "<<", ".inf", "-"]
)


@given(st.text() | like_other_things)
@example("0E0")
@example("E0")
@example("y")
def test_every_text_reads_back_as_itself_by_yaml_1_1_and_1_2(text):
    document = {"value": text, "list": [text], "mapping": {text: {"more": text}}}
    written = documents.dump(document)
    assert documents.parse(written, "file") == document
    for reader in (yaml.SafeLoader, Reader11, Reader12):
        assert yaml.load(written, reader) == document


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.dates()
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(scalars, inner), max_leaves=8)
names = st.sampled_from([field.name for field in fields(Mask)] + ["experiment", "nonsense"])


@given(st.dictionaries(names, values) | values)
def test_any_document_is_a_config_or_one_sentence(document):
    refuses_or_reads(yaml.safe_dump(document))


@given(st.text() | st.text(alphabet="{}[]:,-#&*!|>'\"%@`0x1e.\n ?"))
def test_any_text_is_a_config_or_one_sentence(text):
    refuses_or_reads(text)


def refuses_or_reads(text: str) -> None:
    sentence = ""
    try:
        assert isinstance(read(f"experiment: kiya/mask\n{text}", "file").config, Mask)
    except SinkjaxError as error:
        sentence = str(error)
    assert "\n" not in sentence


def test_a_run_of_before_a_later_field_is_still_read():
    written = documents.write("pretrain", Pretrain(), "training")
    former = "".join(line for line in written.splitlines(keepends=True) if not line.startswith(("weights:", "evaluate_on:")))
    values = {name: value for name, value in documents.parse(former, "file").items() if name != "training"}
    assert documents.read_whole(Pretrain, values, former, "file") == Pretrain()
    with pytest.raises(SinkjaxError, match="lacks steps"):
        documents.read_whole(Pretrain, {name: value for name, value in values.items() if name != "steps"}, former, "file")


BOMB = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BOMB, "more than 20000 values"),
        ("a: &a 1\nb: [" + "*a, " * 101 + "1]", "more than 100 aliases"),
        ("a: &a {b: *a}", r"alias \*a .*line 1"),
        ("a: " + "[" * 50, "more than 40 levels"),
        ("a: " + "[" * 100_000, "line 1"),
        ("".join(f"k{n}: 1\n" for n in range(301)), "301 keys .* 300"),
        ("a: " + "x" * 1_000_000, "longer than a config"),
        ("a: !!float", "'tag:yaml.org,2002:float' .*line 1"),
        ("a: !!timestamp x", "is not allowed"),
        ("a: !mine x", "'!mine' .*not allowed"),
        ("count: 0x" + "f" * 9000, "64 bits .*line 1"),
    ],
    ids=["bomb", "aliases", "cycle", "levels", "depth", "keys", "bytes", "float", "timestamp", "own tag", "digits"],
)
def test_what_is_too_much_for_a_config_is_refused_at_once(text: str, words: str):
    begun = time.process_time()
    with pytest.raises(SinkjaxError, match=words):
        build(text)
    assert time.process_time() - begun < 2
