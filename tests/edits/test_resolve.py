"""What is refused once a model and a batch are known, and the arrays that jitted code sees."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sinkjax
from sinkjax import (
    Probe,
    SinkjaxError,
    Site,
    Statistic,
    add_logit,
    compose,
    drop_mlp,
    edit,
    mask_key,
    scale_head_output,
    shift_positions,
    swap_embeddings,
)
from sinkjax.edits.term import first_layer
from sinkjax.model.rotary import LayerRopes

LENGTHS, T = np.array([10, 7]), 10
INF, NAN = np.inf, np.nan


FAR_AND_BACK = sinkjax.compose(sinkjax.shift_positions(key=2**29), sinkjax.shift_positions(key=-(2**29)))


def test_a_position_is_within_its_prompt(tiny_config) -> None:
    drop_mlp(6).resolve(tiny_config, LENGTHS, T)
    with pytest.raises(SinkjaxError, match="query position 7 is beyond prompt 1"):
        drop_mlp(7).resolve(tiny_config, LENGTHS, T)


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


@pytest.mark.parametrize("edit", [sinkjax.set_positions(query=2**31 - 1), sinkjax.shift_positions(key=2**31 - 6), FAR_AND_BACK])
def test_positions_beyond_the_context_are_indices_of_32_bits(edit, tiny_config):
    for term in edit.resolve(tiny_config, [6], 6):
        assert term.value.dtype == np.int32
        assert np.abs(term.value.astype(np.int64)).max() > tiny_config.context
