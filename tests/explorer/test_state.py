"""The state of the page: every one survives JSON, the YAML and Python say the same edit, and nothing else is read as a state."""

from __future__ import annotations

import ast
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

import sinkjax
from sinkjax.edits.edit_list import read_edits
from sinkjax.explorer.code import python, sweep_config
from sinkjax.explorer.state import KINDS, State, edits_of, read_state, write_state
from sinkjax.study import registry

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
    config = registry.read(sweep_config(state, MODEL, 12, Path("out", "prompt.txt")), "the page's YAML").config
    assert (config.model, config.bos, config.length, config.prompts, config.key) == ("mini-softmax", state.bos, 12, 1, state.key)
    _, *listed = read_edits(config.edits)
    assert as_text(listed) == as_text(edits_of(state))

    tree = ast.parse(python(state, MODEL, 32, 10))
    (made,) = [node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "edit"]
    found = eval(compile(ast.Expression(made), "page", "eval"), {"sinkjax": sinkjax})
    assert as_text(found if isinstance(found, tuple) else (found,)) == as_text(edits_of(state))
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    assert state.prompt in texts
