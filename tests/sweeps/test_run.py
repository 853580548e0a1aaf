"""A sweep as a user sees it: one compile per kind, any number of devices, every edit accounted for."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

import sinkjax
from sinkjax import Probe, SinkjaxError, Site
from sinkjax.checkpoints.model import Model
from sinkjax.model import params as parameters
from sinkjax.sweeps.store import Store
from tests.sweeps.cases import LAYERS, LENGTHS, assert_close, count_traces, model_of, prompts

PROBE = Probe(attention_received=True, resid_max=True)


@pytest.fixture(scope="module")
def model(tiny_config, tiny_params):
    return model_of(tiny_config, tiny_params)


def test_a_kind_compiles_once_whatever_its_layers_heads_positions_and_strengths(tiny_config, model, monkeypatch):
    rng = np.random.default_rng(0)
    strengths = [1, -2.5, np.float32(0.5), jnp.asarray(3.0), np.array(1, np.int64)]
    edits = [
        sinkjax.add_logit(
            int(rng.integers(4)), strengths[n % 5], layers=sorted(rng.choice(LAYERS, 1 + n % 2)), heads=n % 6 if n % 3 else None
        ).named(f"edit {n}")
        for n in range(50)
    ]
    edits += [sinkjax.drop_mlp(position, layers=layer) for position in range(5) for layer in range(LAYERS)] + [sinkjax.compose()]
    probe = Probe(attention_received=True, key_norm=True)
    count_traces(monkeypatch, baseline=1, edited=2)
    result = sinkjax.sweep(model, prompts(tiny_config, count=9, length=40), edits, probe=probe)
    assert max(len(chunk[2]) for chunk in result.attrs["schedule"]["chunks"]) < 10  # several chunks of each kind


def test_fused_attention_gives_the_same_sweep_and_is_stored(tiny_config, model):
    edits = [sinkjax.mask_key(0, layers=1), sinkjax.add_logit(2, 0.5), sinkjax.swap_embeddings(0, 1)]
    own, fused = (sinkjax.sweep(model, prompts(tiny_config), edits, PROBE, attention_impl=how) for how in ("sinkjax", "fused"))
    for name in [*PROBE.dims(), "cells_addressed", "cells_changed"]:
        assert_close(fused[name], own[name], 1e-5, name)
    assert fused.attrs["sweep"]["attention_impl"] == "fused"
    assert "attention_impl" not in own.attrs["sweep"]  # so stores of earlier versions are resumed
    with pytest.raises(SinkjaxError, match="edits at WEIGHTS"):
        sinkjax.sweep(model, prompts(tiny_config), [sinkjax.edit("weights", "scale", 0.5, keys=0)], PROBE, attention_impl="fused")


@pytest.mark.mesh
@pytest.mark.parametrize("count", [3, 8, 11])
def test_eight_devices_give_the_numbers_of_one(tiny_config, tiny_params, model, count):
    assert jax.device_count() == 8
    tokens = prompts(tiny_config)
    masks = [sinkjax.mask_key(key, layers=layer) for key in range(4) for layer in range(LAYERS)]
    edits = [*masks[:count], sinkjax.compose()]
    alone = sinkjax.sweep(model, tokens, edits, probe=PROBE, lengths=LENGTHS)
    everywhere = Model(tiny_config, tiny_params, None, {})  # on no mesh, so that all devices are used
    spread = sinkjax.sweep(everywhere, tokens, edits, probe=PROBE, lengths=LENGTHS)
    assert [machine["devices"] for machine in spread.attrs["hardware"]] == ["8 x cpu"]
    for name in alone.variables:
        assert_close(spread[name], alone[name], 1e-5, name)


@pytest.mark.mesh
@pytest.mark.parametrize("axis_type", [AxisType.Auto, AxisType.Explicit])
def test_a_model_in_shards_gives_the_numbers_of_a_whole_one(tiny_config, axis_type):
    config = replace(tiny_config, heads=8, kv_heads=4, head_dim=8, vocab_size=64, tied=True)
    whole, tokens = parameters.init(config, seed=0), prompts(config)
    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(axis_type, axis_type))
    placed = jax.tree.map(
        lambda leaf, array: jax.device_put(array, parameters.sharding(leaf, mesh)), parameters.abstract(config), whole
    )
    assert placed["layers"]["q"].addressable_shards[0].data.shape[2] == 4
    edits = [sinkjax.add_logit(0, value, layers=layer, heads=(1, 6)) for value in (1.0, -3.0) for layer in range(LAYERS)]
    alone = sinkjax.sweep(model_of(config, whole), tokens, edits, probe=PROBE, lengths=LENGTHS)
    sharded = sinkjax.sweep(Model(config, placed, None, {}), tokens, edits, probe=PROBE, lengths=LENGTHS)
    assert sharded.attrs["sweep"]["parameters"] == alone.attrs["sweep"]["parameters"]  # the same weights, however placed
    for name in alone.variables:
        assert_close(sharded[name], alone[name], 1e-5, name)


def test_what_an_edit_touched_is_counted(tiny_config, model):
    edits = [
        sinkjax.mask_key(0, layers=1, heads=2),
        sinkjax.add_logit(3, 0.0),
        sinkjax.drop_mlp(2, layers=(0, 1)),
        sinkjax.swap_embeddings(1, 1),
        sinkjax.compose(),
    ]
    result = sinkjax.sweep(model, prompts(tiny_config), edits, probe=PROBE, lengths=LENGTHS)
    rows = LENGTHS - 3  # queries that see key 3
    want = [LENGTHS, rows * LAYERS * 6, [2 * 32] * 4, [32] * 4, [0] * 4]
    np.testing.assert_array_equal(result.cells_addressed, want)
    np.testing.assert_array_equal(result.cells_changed, [LENGTHS - 1, [0] * 4, [2 * 32] * 4, [0] * 4, [0] * 4])
    for name in PROBE.dims():  # neutral edits give the numbers of none
        for neutral in (1, 3):
            assert_close(result[name][neutral], result[name][4], 1e-6, name)


def test_a_row_emptied_at_run_time_raises_and_is_not_marked_done(tiny_config, model, tmp_path, monkeypatch):
    monkeypatch.setattr("sinkjax.edits.edit.refuse_empty_rows", lambda *args: None)
    edits = [sinkjax.mask_key(0), sinkjax.edit(Site.LOGITS, "set", -np.inf, keys=0, layers=1)]
    with pytest.raises(SinkjaxError, match=r"edit 1 .* 6 rows"):
        sinkjax.sweep(model, prompts(tiny_config), edits, probe=PROBE, lengths=LENGTHS, out=tmp_path / "x.zarr")
    assert not Store(tmp_path / "x.zarr").done[1].any()


def test_vectors_in_place_of_tokens_are_swept_without_a_vocabulary(tiny_config, tiny_params):
    config = replace(tiny_config, vocab_size=None)
    kept = {name: leaf for name, leaf in tiny_params.items() if name not in ("embed", "unembed")}
    tokens = tiny_params["embed"][prompts(tiny_config)]
    edits = [sinkjax.mask_key(0, layers=layer) for layer in range(LAYERS)]
    vectors = sinkjax.sweep(model_of(config, kept), tokens, edits, probe=PROBE, lengths=LENGTHS)
    ids = sinkjax.sweep(model_of(tiny_config, tiny_params), prompts(tiny_config), edits, probe=PROBE, lengths=LENGTHS)
    assert "tokens" not in vectors
    for name in PROBE.dims():
        assert_close(vectors[name], ids[name], 1e-5, name)


def test_edits_that_change_no_cell_are_listed(tiny_config, model):
    edits = [sinkjax.compose(), sinkjax.add_logit(0, 0.0), sinkjax.mask_key(0), sinkjax.mask_key(11, layers=0)]
    result = sinkjax.sweep(model, prompts(tiny_config)[:1], edits, probe=PROBE)  # no query comes after key 11
    assert result.attrs["unchanged"] == ["add_logit(key=0, value=0)", "mask_key(key=11, layers=0)"]
