"""Models, prompts and edits that the tests of sweeps share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import sinkjax
from sinkjax import Capture, Edit, Probe, SinkjaxError, Site, Statistic
from sinkjax.checkpoints.model import Model
from sinkjax.sweeps import calls, shared
from sinkjax.sweeps.store import Store

LENGTHS = np.array([9, 12, 5, 12])
LAYERS = 3


def spread(x: jax.Array, view: Any) -> jax.Array:
    """A statistic that is not built in: the standard deviation over the residual dims."""
    return x.std(axis=-1)


EVERYTHING = Probe(
    attention_received=True,
    attention_share=True,
    row_entropy=True,
    query_key_cosine=True,
    resid_max=True,
    resid_norm=True,
    resid_median=True,
    resid_argmax=True,
    query_norm=True,
    key_norm=True,
    value_norm=True,
    nll=True,
    attention=(0, 2),
    capture=(
        Capture(Site.EMBED, positions=(0, 3)),
        Capture(Site.LOGITS, layers=(1,), positions=(2,)),
        Capture(Site.RESID, layers=(0, 1), dims=(1, 7)),
        Capture(Site.KEY, name="key_vectors"),
    ),
    extra=(Statistic("spread", Site.RESID, spread, ("prompt", "depth", "position")),),
)


def model_of(config: sinkjax.Config, params: Any, dtype: str = "float32", devices: int = 1) -> Model:
    """A model in memory, a copy on each of the first `devices`."""
    copies = NamedSharding(Mesh(np.array(jax.devices()[:devices]), ("edit",)), PartitionSpec())
    return Model(config, jax.tree.map(lambda leaf: jax.device_put(jnp.asarray(leaf, dtype), copies), params), None, {})


def prompts(config: sinkjax.Config, count: int = len(LENGTHS), length: int = int(LENGTHS.max())) -> np.ndarray:
    """Token ids [count, length]."""
    return np.random.default_rng(1).integers(0, config.vocab_size, (count, length), dtype=np.int32)


# Layers for three terms: each is the first one somewhere, at every layer, alone or not.
FIRST_LAYERS = ((0, 1, 2), (1, 2, 0), (2, 0, 1), (1, 2, 2), (2, 1, 2), (2, 2, 1), (2, 2, 2))


def edits_at(a: int, b: int, c: int) -> list[Edit]:
    """Compositions of three terms, at layers a, b and c, that together act at every site, with every shape of value."""
    some = sinkjax.per_prompt([(1, 3), (2,), (0, 4), (11,)])
    draw = np.random.default_rng(2).standard_normal
    triples = [
        (sinkjax.mask_key(0, layers=a), sinkjax.drop_mlp(some, layers=b), sinkjax.set_residual(0, 5.0, dims=(3, 30), layers=c)),
        (
            sinkjax.shift_positions(query=3, key=-1, layers=a),
            sinkjax.edit(Site.KEY, "scale", 0.3, layers=b, kv_heads=1, keys=2),
            sinkjax.edit(Site.WEIGHTS, "scale", 0.2, layers=c, keys=0, renormalise=True),
        ),
        (
            sinkjax.edit(Site.QUERY, "add", 0.7, layers=a, heads=(0, 4), queries=some),
            sinkjax.scale_head_output(2, 3.0, centre="positions", layers=b),
            sinkjax.edit(Site.NEURON, "set", draw((LAYERS, len(LENGTHS), 48)), layers=c, queries=1),
        ),
        (
            sinkjax.edit(Site.VALUE, "set", 0.1, layers=a, keys=some),
            sinkjax.edit(Site.ATTN_OUT, "set", draw((len(LENGTHS), 32)), layers=b, queries=3),
            sinkjax.attend_self(some, layers=c, heads=2),
        ),
        (
            sinkjax.edit(Site.ATTN_IN, "scale", 0.5, layers=a, queries=some),
            sinkjax.edit(Site.Q_IN, "add", draw((len(LENGTHS), 32)), layers=b, heads=1, queries=2),
            sinkjax.edit(Site.MLP_IN, "inject", draw((LAYERS, len(LENGTHS), 32)), layers=c, queries=1),
        ),
        (
            sinkjax.edit(Site.K_IN, "set", 0.1, layers=a, keys=some, kv_heads=0),
            sinkjax.edit(Site.V_IN, "inject", 0.7, layers=b, keys=1),
            sinkjax.edit(Site.HEAD_VALUE, "scale", 0.4, layers=b, heads=[1, 4], keys=some),
            sinkjax.edit(Site.RESID_MID, "scale", 0.2, layers=c, queries=3),
        ),
    ]
    return [sinkjax.compose(*triple) for triple in triples]


EMBEDDING_EDITS = [
    sinkjax.compose(sinkjax.swap_embeddings(np.array([0, 1, 2, 3]), 4), sinkjax.add_logit(1, 2.5, layers=layer))
    for layer in range(LAYERS)
]


def interrupted(monkeypatch: pytest.MonkeyPatch, written: int, sweep: Callable[[], object]) -> None:
    """Let a sweep end after so many writes."""
    write, left = Store.write, iter(range(written))

    def fail(store: Store, *values: Any) -> None:
        if next(left, None) is None:
            raise SinkjaxError("the disk is full")
        write(store, *values)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "write", fail)
        with pytest.raises(SinkjaxError, match="disk"):
            sweep()


def count_traces(monkeypatch: pytest.MonkeyPatch, **most: int) -> None:
    """From here on a sweep raises when it traces `baseline` or `edited` more often than stated; nothing is traced yet."""
    chex.clear_trace_counter()
    for name, limit in most.items():
        traced = chex.assert_max_traces(getattr(shared, name).__wrapped__, limit)
        monkeypatch.setattr(calls, name, jax.jit(traced, static_argnames="spec"))


def assert_close(got: Any, want: Any, tolerance: float, what: str = "") -> None:
    """Equal where not finite, and elsewhere to `tolerance` of the largest value; integers exactly."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape, what
    if want.dtype.kind not in "fV":
        np.testing.assert_array_equal(got, want, err_msg=what)
        return
    finite = np.isfinite(want)
    np.testing.assert_array_equal(got[~finite], want[~finite], err_msg=what)
    error = np.abs(got[finite] - want[finite]).max(initial=0)
    assert error <= tolerance * np.abs(want[finite]).max(initial=0), f"{what}: {error}"
