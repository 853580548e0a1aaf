"""The state of the page: every one survives JSON, the YAML and Python say the same edit, and nothing else is read as a state."""

from __future__ import annotations

import ast
import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sinkjax
from sinkjax.edits.edit_list import read_edits
from sinkjax.errors import SinkjaxError
from sinkjax.explorer.code import prompt_line, python, sweep_config
from sinkjax.explorer.state import KINDS, State, arguments, edits_of, read_state, write_state
from sinkjax.study import choice

MODEL = {"model": "mini-softmax", "dtype": "float32"}

PROMPTS = st.text(max_size=40).map(lambda text: f"a {' '.join(text.split())}".strip())
PLACES = st.integers(0, 500)
LAYERS = st.tuples(PLACES, PLACES).map(lambda ends: tuple(sorted(ends)))
STATES = st.builds(
    State,
    prompt=PROMPTS,
    bos=st.sampled_from(("model", "none")),
    kind=st.sampled_from(("none", *KINDS)),
    token=PLACES,
    other=PLACES,
    value=st.floats(-1e6, 1e6),
    dim=PLACES,
    matrix=st.sampled_from(("q", "o", "down")),
    row=st.none() | PLACES,
    col=st.none() | PLACES,
    layers=st.none() | LAYERS,
    heads=st.none() | st.lists(PLACES, min_size=1, max_size=9, unique=True).map(tuple),
    layer=PLACES,
    head=st.none() | PLACES,
    key=st.integers(0, 10),
)


def as_text(edits) -> list[str]:
    """Edits with every digit of their values, some of which are arrays."""
    return [repr(edit) for edit in edits]


@given(STATES)
def test_a_state_survives_json(state):
    assert read_state(write_state(state)) == state


@settings(max_examples=50)
@given(STATES)
def test_the_yaml_and_the_python_are_the_edit_of_the_state(state):
    config = choice.read(sweep_config(state, MODEL, 12, Path("out", "prompt.txt")), "the page's YAML").config
    assert (config.model, config.bos, config.length, config.prompts, config.key) == ("mini-softmax", state.bos, 12, 1, state.key)
    _, *listed = read_edits(config.edits)
    assert as_text(listed) == as_text(edits_of(state))

    tree = ast.parse(python(state, MODEL, 32, 10))
    (made,) = [node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "edit"]
    found = eval(compile(ast.Expression(made), "page", "eval"), {"sinkjax": sinkjax})
    assert as_text(found if isinstance(found, tuple) else (found,)) == as_text(edits_of(state))
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    assert state.prompt in texts


def test_the_line_of_a_prompt_is_longer_where_a_bos_stands_before_it():
    assert prompt_line(State(prompt="a b")) == "a b\n"
    assert prompt_line(State(prompt="a b", bos="model")) == "a b .\n"


def test_layers_are_one_or_a_slice_and_defaults_are_left_out():
    assert arguments(State(prompt="a", kind="mask_key", token=3)) == {"key": 3}
    assert arguments(State(prompt="a", kind="mask_key", layers=(2, 2), heads=(1,))) == {"key": 0, "layers": 2, "heads": [1]}
    assert arguments(State(prompt="a", kind="drop_mlp", layers=(0, 2))) == {"position": 0, "layers": slice(0, 3)}
    assert arguments(State(prompt="a")) == {}
    weights = {"name": "down", "op": "scale", "value": 0.0, "cols": 3}
    assert arguments(State(prompt="a", kind="edit_weights", matrix="down", col=3)) == weights


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not valid JSON"),
        ("[]", "must be a JSON object"),
        ("{}", "lacks the key 'prompt'"),
        ('{"prompt": "a", "prompt": "b"}', "written twice"),
        ('{"prompt": "a", "value": NaN}', "NaN is not"),
        ('{"prompt": "a", "value": 1e400}', "within 1e+06 of 0, not inf"),
        ('{"prompt": "a", "layer": 1.5}', "layer must be an integer"),
        ('{"prompt": "a", "token": true}', "token must be an integer"),
        ('{"prompt": "a", "token": -1}', "token must be at least 0"),
        ('{"prompt": "a", "kind": "edit"}', "unknown kind 'edit'"),
        ('{"prompt": "a", "tokens": 1}', "did you mean 'token'?"),
        ('{"prompt": "a", "layers": [2, 1]}', "not 2 and 1"),
        ('{"prompt": "a", "layers": [1]}', "a list of 2"),
        ('{"prompt": "a", "heads": []}', "tick at least one"),
        ('{"prompt": "a", "heads": [1, 1]}', "each head once"),
        ('{"prompt": "a", "row": -1}', "row must be at least 0"),
        ('{"prompt": "a", "op": "set"}', "unknown key 'op'"),
        ('{"prompt": " "}', "the prompt is empty"),
        ('{"prompt": "a\\nb"}', "must be one line"),
        ('{"prompt": "= a ="}', "the form of a heading"),
        ("[" * 100_000, "not valid JSON"),
    ],
)
def test_what_is_no_state_is_refused_in_one_sentence(text, says):
    with pytest.raises(SinkjaxError) as refused:
        read_state(text)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_every_field_is_in_the_json():
    assert set(json.loads(write_state(State(prompt="a")))) == {field.name for field in dataclasses.fields(State)}
