"""What is refused once a model and a batch are known, and the arrays that jitted code sees."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sinkjax
from sinkjax import (
    Edit,
    Probe,
    SinkjaxError,
    Site,
    Statistic,
    add_logit,
    attend_self,
    compose,
    drop_mlp,
    edit,
    mask_key,
    per_prompt,
    scale_head_output,
    set_positions,
    set_residual,
    shift_positions,
    swap_embeddings,
)
from sinkjax.edits.term import first_layer
from sinkjax.model.rotary import LayerRopes
from tests.edits.cases import DENSE, at

LENGTHS, T = np.array([10, 7]), 10
INF, NAN = np.inf, np.nan

REFUSED: dict[str, Edit] = {
    r"layer 3 .* 0 to 2": mask_key(0, layers=[0, 3]),
    r"head 6 .* 0 to 5": mask_key(0, heads=6),
    r"key-value head 2 .* 0 to 1": edit("key", "add", 1.0, kv_heads=2),
    r"dim 32 .* 0 to 31": set_residual(0, 1.0, dims=32),
    r"dim 8 .* 0 to 7": edit("query", "add", 1.0, dims=8),
    r"dim 48 .* 0 to 47": edit("neuron", "scale", 0.0, dims=[48]),
    r"key position 10 .* 0 to 9": mask_key(10),
    r"query position 7 .*prompt 1, .*\(0 to 6\)": drop_mlp(7),
    r"key position 8 is beyond prompt 1": mask_key(per_prompt([9, 8])),
    r"per_prompt .* 3 prompts, .* 2": mask_key(per_prompt([1, 2, 3])),
    r"per_prompt .* 1 prompts, .* 2": mask_key(per_prompt([1])),
    r"layer slice .* 5, .* 3": mask_key(0, layers=slice(0, 5)),
    r"layer slice 2:2 selects nothing of 3": mask_key(0, layers=slice(2, 2)),
    r"WEIGHTS has 9 entries over keys; allowed: 10": edit("weights", "set", np.ones((3, 2, 6, 9)), queries=2),
    r"a value at LOGITS has rank 0 or 3, not 4": edit("logits", "set", np.ones((3, 2, 6, 10)), queries=2),
    r"swap position 7 .*prompt 1": swap_embeddings(0, 7),
    r"swap position -1 .*prompt 0": swap_embeddings(0, -1),
    r"2 prompts, not shape \(3, 2\)": swap_embeddings([0, 1, 2], 3),
    r"a swap needs integer positions": edit("embed", "swap", (0.5, 1.0)),
    r"rotary indices .*not float64": shift_positions(query=0.5),
    r"rotary indices .*\(\), \(10,\) or \(2, 10\), not \(9,\)": set_positions(key=np.arange(9)),
    r"must be finite$": set_residual(0, -INF),
    r"must be finite or -inf$": add_logit(0, NAN),
    r"RESID must be finite": set_residual(0, [0.0, NAN], dims=[1, 2]),
    r"LOGITS must be finite": add_logit(0, INF),
    r"value .*number, not text": add_logit(0, "x"),
    r"value .*array, .*different lengths": set_residual(0, [[1.0], [1.0, 2.0]]),
    r"has 3 entries over dims; allowed: 1, 2, 32": set_residual(0, [1.0, 2.0, 3.0], dims=[4, 5]),
    r"has 3 entries over prompts; allowed: 1, 2": set_residual(0, np.zeros((3, 32))),
    r"has 4 entries over layers; allowed: 1, 3": set_residual(0, np.zeros((4, 2, 32))),
    r"has 4 entries over heads; allowed: 1, 6": edit("query", "set", np.zeros((3, 2, 4, 8))),
    r"LOGITS has rank 0 or 3, not 1": add_logit(0, [1.0, 2.0]),
    r"distance slice .* 11, .* 10": edit("logits", "add", 1.0, distances=slice(2, 11)),
    r"query 0 \(prompt 0, layer 0, head 0\)": edit("logits", "set", -INF, keys=0),
    r"query 4 \(prompt 0, layer 1, head 2\)": compose(
        attend_self(4, layers=1), edit("logits", "add", -INF, queries=4, relation="self", layers=[1, 2], heads=2)
    ),
    r"no causally visible cell at LOGITS": edit("logits", "add", 1.0, queries=2, keys=5),
    r"set logits.*no causally visible cell": edit("logits", "set", -INF, queries=[3, 4], keys=2, distances=[0, 3]),
    r"inject at MLP_IN and scale at MLP_IN": compose(edit("mlp_in", "scale", 0.5), edit("mlp_in", "inject", 1.0)),
    r"inject at K_IN and set at ATTN_IN": compose(edit("attn_in", "set", 0.5), edit("k_in", "inject", 1.0)),
    r"no causally visible cell at WEIGHTS": edit("weights", "scale", 0.5, queries=0, keys=[1, 2]),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refusals(tiny_config, message: str) -> None:
    with pytest.raises(SinkjaxError, match=message) as refused:
        REFUSED[message].resolve(tiny_config, LENGTHS, T)
    assert "\n" not in str(refused.value)


FAR_AND_BACK = sinkjax.compose(sinkjax.shift_positions(key=2**29), sinkjax.shift_positions(key=-(2**29)))


def test_a_slice_may_reach_beyond_a_short_prompt_but_not_be_beyond_all(tiny_config) -> None:
    drop_mlp(slice(5, 10)).resolve(tiny_config, LENGTHS, T)
    with pytest.raises(SinkjaxError, match="no causally visible cell"):
        drop_mlp(slice(8, 10)).resolve(tiny_config, np.array([7, 6]), T)


def test_legitimate_without_effect(tiny_config) -> None:
    """Declared controls: they address cells, and change none."""
    for harmless in (attend_self(0), mask_key(6), mask_key(0, layers=0), swap_embeddings(2, 2)):
        harmless.resolve(tiny_config, LENGTHS, T)


def test_masks_of_different_prompts_do_not_add_up(tiny_config) -> None:
    """Prompt 0 loses its first keys, prompt 1 the others: every row of both keeps a key, until a mask is of both prompts."""
    first = lambda *prompts: edit("logits", "add", np.reshape(prompts, (1, 2, 1)), queries=4, keys=[0, 1])  # noqa: E731
    others = edit("logits", "add", np.reshape([0.0, -INF], (1, 2, 1)), queries=4, keys=[2, 3, 4])
    compose(first(-INF, 0.0), others).resolve(tiny_config, LENGTHS, T)
    with pytest.raises(SinkjaxError, match=r"query 4 \(prompt 1, layer 0, head 0\)"):
        compose(first(-INF, -INF), others).resolve(tiny_config, LENGTHS, T)


def test_a_window_narrows_what_is_visible(tiny_config) -> None:
    windowed = dataclasses.replace(tiny_config, windows=(None, 2, 2))
    far = edit("logits", "add", 1.0, queries=5, keys=2)
    far.resolve(windowed, LENGTHS, T)
    with pytest.raises(SinkjaxError, match="no causally visible cell"):
        edit("logits", "add", 1.0, queries=5, keys=2, layers=[1, 2]).resolve(windowed, LENGTHS, T)
    near = edit("logits", "set", -INF, queries=5, keys=[4, 5], heads=1)
    near.resolve(tiny_config, LENGTHS, T)
    with pytest.raises(SinkjaxError, match=r"query 5 \(prompt 0, layer 1, head 1\)"):
        near.resolve(windowed, LENGTHS, T)


def test_a_layer_that_is_not_rotated_has_no_indices(tiny_config) -> None:
    config = dataclasses.replace(tiny_config, position=LayerRopes(tiny_config.ropes, (None, 0, 0)))
    (shift,) = shift_positions(query=1).resolve(config, LENGTHS, T)
    assert shift.layer_head[:, 0].tolist() == [False, True, True]
    with pytest.raises(SinkjaxError, match=r"POSITION: .*no rotary positions"):
        shift_positions(query=1, layers=0).resolve(config, LENGTHS, T)


def test_thousands_of_edits_cost_kilobytes_each(tiny_config) -> None:
    long = dataclasses.replace(tiny_config, context=4096)
    resolved = compose(mask_key(0), attend_self(5), drop_mlp(3)).resolve(long, [4096], 4096)
    assert sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(resolved)) < 40_000


def test_first_layer_of_a_composition_is_the_earliest(tiny_config) -> None:
    first = lambda *edits: first_layer(compose(*edits).resolve(tiny_config, LENGTHS, T), tiny_config)  # noqa: E731
    assert first(mask_key(0, layers=[2, 1])) == 1
    assert first(drop_mlp(0, layers=2), shift_positions(query=1, layers=1)) == 1
    assert first(drop_mlp(0, layers=2), swap_embeddings(0, 1)) == 0
    assert first() == tiny_config.layers


def test_one_compile_serves_a_kind_of_edit(tiny_params, tiny_config, tokens) -> None:
    """Whatever the layers, heads, positions and strengths are, and however the strength is passed."""
    traces = []

    def counted(x: jax.Array, view: Any) -> jax.Array:
        traces.append(x)
        return x[..., 0]

    probe = Probe(extra=(Statistic("first", Site.ATTN_OUT, counted, ("prompt", "layer", "position")),))
    rng = np.random.default_rng(0)
    after_first = 0
    for i in range(50):
        strength = float(rng.normal())
        value = [strength, np.float32(strength), jnp.asarray(strength), jnp.float32(strength), 1][i % 5]
        one = compose(
            add_logit(int(rng.integers(7)), value, layers=rng.integers(3, size=2), heads=slice(0, 1 + i % 6)),
            scale_head_output(rng.integers(7, size=1 + i % 3), value),
            edit("resid", "add", value, queries=int(rng.integers(7)), dims=rng.integers(32, size=3), layers=i % 3),
        )
        sinkjax.forward(tiny_params, tokens, tiny_config, one, probe, LENGTHS if i % 2 else [10, 8])
        after_first = after_first or len(traces)
    assert len(traces) == after_first > 0


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_resolved_arrays_have_the_shapes_of_their_kind(tiny_config, data: st.DataObject) -> None:
    """Edits of one kind stack: shapes depend on site, operation and rank of the value alone."""
    site = data.draw(st.sampled_from(DENSE))
    positions = st.integers(0, 6)
    shapes = set()
    for _ in range(2):
        layer = None if site == Site.EMBED else data.draw(st.none() | st.integers(0, 2))
        strength = data.draw(st.integers(-3, 3)) if site == Site.POSITION else data.draw(st.floats(-2, 2))
        position = data.draw(st.integers(1, 6) if site in (Site.LOGITS, Site.WEIGHTS) else positions)
        (term,) = at(site, position, strength, layer=layer).resolve(tiny_config, LENGTHS, T)
        assert term.query.any() or term.key.any()
        shapes.add(tuple((leaf.shape, str(leaf.dtype)) for leaf in map(np.asarray, jax.tree.leaves(term))))
    assert len(shapes) == 1


@pytest.mark.parametrize("edit", [sinkjax.set_positions(query=2**31 - 1), sinkjax.shift_positions(key=2**31 - 6), FAR_AND_BACK])
def test_positions_beyond_the_context_are_indices_of_32_bits(edit, tiny_config):
    for term in edit.resolve(tiny_config, [6], 6):
        assert term.value.dtype == np.int32
        assert np.abs(term.value.astype(np.int64)).max() > tiny_config.context


@pytest.mark.parametrize(
    "edit",
    [
        sinkjax.set_positions(query=2**40),
        sinkjax.set_positions(key=-(2**31) - 1),
        sinkjax.shift_positions(query=2**32),
        sinkjax.shift_positions(key=2**31 - 5),
        sinkjax.compose(sinkjax.shift_positions(query=2**30), sinkjax.shift_positions(query=2**30)),
    ],
    ids=lambda edit: edit.label,
)
def test_positions_of_more_than_32_bits_are_refused(edit, tiny_config):
    with pytest.raises(SinkjaxError, match="rotary indices"):
        edit.resolve(tiny_config, [6], 6)
