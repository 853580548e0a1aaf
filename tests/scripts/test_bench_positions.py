"""What the prototype of sharing rows measures: blocks in tiles that are the blocks, and rows that an edit leaves alone."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sinkjax
from sinkjax import Site
from sinkjax.edits.edit import resolve
from sinkjax.transformer.block import block_step
from sinkjax.transformer.spec import ForwardSpec
from tests.sweeps.cases import assert_close

T, LENGTHS = 16, np.array([16, 14])


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "scripts")
    return importlib.import_module("bench_positions")


def test_blocks_in_tiles_are_the_blocks(bench, tiny_config, tiny_params, monkeypatch):
    monkeypatch.setattr(bench, "LAYERS", tiny_config.layers)
    spec = ForwardSpec(config=dataclasses.replace(tiny_config, vocab_size=None), probe=bench.PROBE, logits=False)
    h, lengths = jax.random.normal(jax.random.key(0), (2, T, tiny_config.width)), jnp.full(2, T)
    edits = jax.tree.map(jnp.asarray, resolve(sinkjax.attend_self(9), tiny_config, [T] * 2, T))
    step = block_step(spec, lengths, edits, h)
    layers = jnp.arange(tiny_config.layers), tiny_params["layers"]
    (want, _), measured = jax.lax.scan(step, (h, {}), layers)
    nothing = jnp.zeros((2, T, tiny_config.kv_heads, tiny_config.head_dim))
    got, record = bench.in_tiles(spec, tiny_params, h, lengths, edits, (nothing, nothing), jnp.int32(0), 8)
    assert_close(got, want, 1e-5)
    assert_close(record["attention_received"], measured["record"]["attention_received"], 1e-5)
    skipped, _ = bench.in_tiles(spec, tiny_params, h, lengths, edits, (nothing, nothing), jnp.int32(8), 8)
    np.testing.assert_array_equal(skipped[:, :8], h[:, :8])
    assert not np.allclose(skipped[:, 8:], want[:, 8:])  # it had no keys of the rows before


@pytest.mark.parametrize(
    ("edit", "row"),
    [
        (sinkjax.mask_key(9), 9),
        (sinkjax.attend_self(11), 11),
        (sinkjax.edit(Site.LOGITS, "set", -np.inf, keys=slice(2, None), distances=slice(10, None)), 12),
        (sinkjax.compose(sinkjax.mask_key(13), sinkjax.drop_mlp(12)), 12),
        (sinkjax.edit(Site.KEY, "scale", 0.5, keys=(10, 13)), 10),
        (sinkjax.drop_mlp(sinkjax.per_prompt([13, 9])), 9),
        (sinkjax.swap_embeddings(np.array([9, 10]), 12), 9),
        (sinkjax.edit(Site.RESID, "scale", 2.0, layers=1), 0),
    ],
)
def test_the_first_row_that_an_edit_touches(bench, tiny_config, edit, row):
    assert bench.first_row(resolve(edit, tiny_config, LENGTHS, T), T) == row
