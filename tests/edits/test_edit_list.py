"""Edits in YAML are those of Python, grids are spelled out, and mistakes are named."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import sinkjax
from sinkjax.edits.edit_list import CONSTRUCTORS, read_edits
from sinkjax.errors import SinkjaxError


def edits(text: str) -> list[sinkjax.Edit]:
    return read_edits(yaml.safe_load(text))


def same(one: sinkjax.Edit, two: sinkjax.Edit, config: sinkjax.Config) -> bool:
    """Whether two edits do the same to a model."""
    leaves = [jax.tree.flatten(edit.resolve(config, [8, 8], 8)) for edit in (one, two)]
    return leaves[0][1] == leaves[1][1] and all(np.array_equal(a, b) for a, b in zip(leaves[0][0], leaves[1][0], strict=True))


@pytest.mark.parametrize(
    ("text", "edit"),
    [
        ("mask_key: {key: 0}", sinkjax.mask_key(0)),
        ("mask_key: {key: 0, layers: [0, 2], heads: 1}", sinkjax.mask_key(0, layers=[0, 2], heads=1)),
        ("mask_key: {key: 0, layers: '1:'}", sinkjax.mask_key(0, layers=slice(1, None))),
        ("mask_key: {key: '1:6:2'}", sinkjax.mask_key(slice(1, 6, 2))),
        ("add_logit: {key: 3, value: -.inf}", sinkjax.add_logit(3, -np.inf)),
        ("swap_embeddings: {i: 0, j: 3}", sinkjax.swap_embeddings(0, 3)),
        ("shift_positions: {query: 2}", sinkjax.shift_positions(query=2)),
        ("scale_head_output: {position: 0, factor: 2, centre: dims}", sinkjax.scale_head_output(0, 2, centre="dims")),
        ("edit: {site: resid, op: add, value: 3, queries: 0, layers: 1}", sinkjax.edit("resid", "add", 3, queries=0, layers=1)),
        ("compose: [{mask_key: {key: 0}}, {drop_mlp: {position: 1}}]", sinkjax.compose(sinkjax.mask_key(0), sinkjax.drop_mlp(1))),
    ],
)
def test_an_entry_is_the_call_it_spells(text, edit, tiny_config):
    (read,) = edits(f"- {{{text}}}")
    assert same(read, edit, tiny_config)
    assert read.label == edit.label


def test_each_makes_a_grid_in_the_order_of_its_arguments():
    labels = [edit.label for edit in edits("- add_logit: {key: 0, value: {each: [1, 2]}, layers: {each: '0:3'}}")]
    assert labels == [f"add_logit(key=0, value={value}, layers={layer})" for value in (1, 2) for layer in (0, 1, 2)]


def test_each_may_list_selectors(tiny_config):
    first, second = edits("- mask_key: {key: 0, layers: {each: ['0:2', [0, 2]]}}")
    assert same(first, sinkjax.mask_key(0, layers=slice(0, 2)), tiny_config)
    assert same(second, sinkjax.mask_key(0, layers=[0, 2]), tiny_config)


def test_compositions_of_grids_are_grids():
    text = "- compose: [{mask_key: {key: {each: [0, 1]}}}, {drop_mlp: {position: 0, layers: {each: [0, 1, 2]}}}]"
    assert len(edits(text)) == 6


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["0:3", "each", ":"])
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["each", "key"]), inner), max_leaves=6
)
arguments = st.dictionaries(st.sampled_from(["key", "position", "value", "layers", "site", "op", "i", "j", "factor"]), values)


@given(
    st.lists(st.dictionaries(st.sampled_from([*CONSTRUCTORS, "compose", "label"]), arguments | values, max_size=2), max_size=3)
)
def test_any_list_is_edits_or_one_sentence(entries):
    sentence = "edits"
    try:
        assert all(isinstance(edit, sinkjax.Edit) for edit in read_edits(entries))
    except SinkjaxError as error:
        sentence = str(error)
    assert sentence.startswith(("edits", "two edits"))


@pytest.mark.parametrize("value", ["-inf", "-.inf", "-Inf"])
def test_an_infinity_in_quotes_is_a_number(value):
    [read] = read_edits([{"add_logit": {"key": 0, "value": {"each": [value]}}}])
    assert read.terms[0].value == float("-inf")
