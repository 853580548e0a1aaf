"""The choice of the attention: by device, dtype, length, edits, probe and need of a derivative."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest

import sinkjax
from sinkjax import Probe
from sinkjax.edits.edit import resolve
from sinkjax.errors import SinkjaxError
from sinkjax.model.config import Config
from sinkjax.model.normalisers import Sigmoid, SinkLogit
from sinkjax.runtime.hardware import Hardware
from sinkjax.transformer import implementations
from sinkjax.transformer.implementations import LONG, chosen

RECEIVED = Probe(attention_received=True, resid_max=True, nll=True)
MASK, WEIGHTS = sinkjax.mask_key(0, layers=1), sinkjax.edit("weights", "scale", 0.5, keys=0)
VALUES = sinkjax.edit("head_value", "scale", 0.5, keys=0)


def by(platform: str, **hardware: Any) -> dict[str, Any]:
    return {"hardware": Hardware(platform=platform, **hardware)}


@pytest.mark.parametrize(
    ("given", "without", "with_derivative"),
    [
        ({}, "pallas", "fused"),
        (by("h100"), "pallas", "fused"),
        (by("l4"), "sinkjax", "fused"),  # too little shared memory for the tiles of the kernels
        (by("cpu"), "sinkjax", "sinkjax"),
        (by("tpu"), "sinkjax", "sinkjax"),
        (by("h200", shards=2), "sinkjax", "sinkjax"),
        ({"T": LONG - 1}, "sinkjax", "sinkjax"),
        ({"dtype": "float32"}, "sinkjax", "sinkjax"),
        ({"probe": Probe(row_entropy=True)}, "sinkjax", "sinkjax"),
        ({"edits": [MASK, ()]}, "pallas", "sinkjax"),
        ({"edits": [VALUES]}, "pallas", "sinkjax"),
        ({"edits": [MASK, WEIGHTS]}, "sinkjax", "sinkjax"),  # one for all edits
        ({"config": {"normaliser": SinkLogit()}}, "pallas", "sinkjax"),
        ({"config": {"normaliser": Sigmoid()}}, "sinkjax", "sinkjax"),
        ({"config": {"windows": (4, None, None)}}, "pallas", "sinkjax"),
        ({"config": {"head_dim": 256}}, "pallas", "fused"),
        ({"config": {"head_dim": 256}, **by("a100-40")}, "pallas", "sinkjax"),
        ({"config": {"head_dim": 20}}, "pallas", "sinkjax"),
    ],
    ids=str,
)
def test_the_rule(given: dict[str, Any], without: str, with_derivative: str, tiny_config: Config) -> None:
    config = dataclasses.replace(tiny_config, **given.get("config", {}))
    edits = [resolve(each, config, [16], 16, "bfloat16") for each in given.get("edits", [()])]
    request = {"probe": RECEIVED, "T": LONG, "dtype": "bfloat16", **by("h200")}
    request |= {name: value for name, value in given.items() if name in request}
    assert chosen("auto", config, edits, **request) == without
    assert chosen("auto", config, edits, **request, derivative="first") == with_derivative
    assert chosen("auto", config, edits, **request, derivative="any") == "sinkjax"
    for name in {without, with_derivative}:  # what it takes is never refused
        assert chosen(name, config, edits, **request) == name


@pytest.fixture
def as_on_a_gpu(monkeypatch) -> list[str]:
    """The rule finds a GPU and kernels worth taking; what runs is still this machine. Returns the chosen names."""
    monkeypatch.setattr(Hardware, "capability", (9, 0))
    monkeypatch.setattr(implementations, "LONG", 8)
    names: list[str] = []
    monkeypatch.setattr(implementations.fused, "attend", lambda *given, **_: names.append("fused") or plain(*given))
    plain = implementations.attention.attend
    from sinkjax.transformer import flash

    kernel = flash.attend
    monkeypatch.setattr(flash, "attend", lambda *given: names.append("pallas") or kernel(*given))
    jax.clear_caches()
    return names


def test_a_forward_takes_it_unless_it_may_be_differentiated(as_on_a_gpu, tiny_config, tiny_params) -> None:
    params, tokens = jax.tree.map(lambda leaf: leaf.astype("bfloat16"), tiny_params), np.ones((2, 8), int)

    def forward(tokens: Any = tokens, params: Any = params, edits: Any = ()) -> jax.Array:
        return sinkjax.forward(params, tokens, tiny_config, edits, probe=RECEIVED).logits.sum()

    forward()
    assert set(as_on_a_gpu) == {"pallas"}
    as_on_a_gpu.clear()
    jax.clear_caches()
    jax.jit(forward)(tokens)
    assert set(as_on_a_gpu) == {"pallas"}  # whole numbers have no derivative
    as_on_a_gpu.clear()
    jax.clear_caches()
    jax.eval_shape(jax.grad(lambda params: forward(params=params)), params)
    jax.eval_shape(jax.jit(jax.grad(lambda value: forward(edits=sinkjax.add_logit(0, value)))), 0.5)
    assert as_on_a_gpu == []


def test_a_sweep_stores_its_name_and_a_resumed_one_keeps_it(as_on_a_gpu, tiny_config, tiny_params, tmp_path, monkeypatch) -> None:
    params = jax.tree.map(lambda leaf: leaf.astype("bfloat16"), tiny_params)
    model, tokens = sinkjax.Model(tiny_config, params, None, {"name": "tiny"}), np.arange(16).reshape(2, 8)
    sweep = lambda name, edits=(MASK,), **how: sinkjax.sweep(  # noqa: E731
        model, tokens, list(edits), RECEIVED, out=tmp_path / name, progress=False, **how
    )
    assert sweep("gpu.zarr").attrs["sweep"]["attention_impl"] == "pallas"
    assert "attention_impl" not in sweep("weights.zarr", (MASK, WEIGHTS)).attrs["sweep"]
    monkeypatch.setattr(Hardware, "capability", None)
    assert "attention_impl" not in sweep("cpu.zarr").attrs["sweep"]
    assert sweep("gpu.zarr").attrs["sweep"]["attention_impl"] == "pallas"
    with pytest.raises(SinkjaxError, match='attention_impl was "pallas"'):
        sweep("gpu.zarr", attention_impl="sinkjax")
    monkeypatch.setattr(Hardware, "capability", (9, 0))
    assert "attention_impl" not in sweep("cpu.zarr").attrs["sweep"]
