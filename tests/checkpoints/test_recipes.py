"""The recipes of docs/how-to/own-model.md for stacked layers read trees that are made by hand."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sinkjax
from sinkjax.errors import SinkjaxError
from sinkjax.model import params
from sinkjax.model.config import RMSNorm
from sinkjax.model.rotary import Rope
from tests.test_snippets import ROOT, SNIPPET

PAGE = ROOT / "docs" / "how-to" / "own-model.md"
SIZES = {"layers": 3, "width": 24, "heads": 4, "kv_heads": 2, "head_dim": 16, "mlp_width": 40, "vocab_size": 50, "context": 32}
TOKENS = np.random.default_rng(1).integers(0, 50, (2, 9))


@pytest.fixture(scope="module")
def recipes() -> dict[str, Any]:
    names: dict[str, Any] = {"sinkjax": sinkjax, "params": params}
    for snippet in SNIPPET.findall(PAGE.read_text(encoding="utf-8")):
        if "def from_" in snippet:
            exec(snippet, names)
    return names


@pytest.fixture(params=[False, True], ids=["untied", "tied"])
def model(request: pytest.FixtureRequest) -> sinkjax.Model:
    config = sinkjax.Config(**SIZES, activation="silu", tied=request.param, norm=RMSNorm(1e-5), position=Rope(10_000.0))
    tree = params.init(config, seed=3)
    tree["layers"]["attn_norm"] += jnp.arange(24) / 50  # so that norms that change places are seen
    tree["final_norm"] -= 0.1
    return sinkjax.Model(config, tree, tokenizer=None, source={"name": "by hand"})


def logits(model: sinkjax.Model) -> np.ndarray:
    return np.asarray(sinkjax.forward(model, TOKENS).logits)


def maxtext(model: sinkjax.Model, rope_type: str) -> tuple[dict[str, Any], Any]:
    """The decoder and the embedding that MaxText has of this model."""
    own = model.params["layers"]

    def interleaved(array: jax.Array) -> jax.Array:
        if rope_type != "llama3.1":
            return array
        first, second = jnp.split(array, 2, -1)
        return jnp.stack([first, second], -1).reshape(array.shape)

    layers = {
        "pre_self_attention_layer_norm": {"scale": own["attn_norm"]},
        "post_self_attention_layer_norm": {"scale": own["mlp_norm"]},
        "self_attention": {
            "query": {"kernel": interleaved(own["q"]) / math.sqrt(model.config.head_dim)},
            "key": {"kernel": interleaved(own["k"])},
            "value": {"kernel": own["v"]},
            "out": {"kernel": own["o"]},
        },
        "mlp": {name: {"kernel": own[leaf]} for name, leaf in (("wi_0", "gate"), ("wi_1", "up"), ("wo", "down"))},
    }
    decoder = {
        "layers": jax.tree.map(lambda array: jnp.moveaxis(array, 0, 1), layers),
        "decoder_norm": {"scale": model.params["final_norm"]},
    }
    if not model.config.tied:
        decoder["logits_dense"] = {"kernel": model.params["unembed"]}
    return decoder, model.params["embed"]


@pytest.mark.parametrize("rope_type", ["default", "llama3.1"])
def test_maxtext(recipes: dict[str, Any], model: sinkjax.Model, rope_type: str) -> None:
    decoder, embedding = maxtext(model, rope_type)
    assert decoder["layers"]["self_attention"]["query"]["kernel"].shape == (24, 3, 4, 16)
    made = recipes["from_maxtext"](model.config, decoder, embedding, rope_type)
    np.testing.assert_array_equal(logits(made), logits(model))
    other = "llama3.1" if rope_type == "default" else "default"
    assert np.abs(logits(recipes["from_maxtext"](model.config, decoder, embedding, other)) - logits(model)).max() > 1e-3


def test_equinox(recipes: dict[str, Any], model: sinkjax.Model) -> None:
    own, sizes = model.params["layers"], model.config

    def linear(array: jax.Array) -> SimpleNamespace:  # [L, in, out] as eqx.nn.Linear stores it
        return SimpleNamespace(weight=jnp.swapaxes(array, 1, 2))

    def weight(array: jax.Array) -> SimpleNamespace:
        return SimpleNamespace(weight=array)

    attention = {
        f"{name}_proj": linear(own[name[0]].reshape(sizes.layers, sizes.width, -1)) for name in ("query", "key", "value")
    }
    attention["output_proj"] = linear(own["o"].reshape(sizes.layers, -1, sizes.width))
    mlp = {name: linear(own[name]) for name in ("gate", "up", "down")}
    norms = {"attention_norm": weight(own["attn_norm"]), "mlp_norm": weight(own["mlp_norm"])}
    module = SimpleNamespace(
        embed=weight(model.params["embed"]),
        norm=weight(model.params["final_norm"]),
        layers=SimpleNamespace(attention=SimpleNamespace(**attention), **mlp, **norms),
    )
    if not sizes.tied:
        module.unembed = weight(model.params["unembed"].T)
    np.testing.assert_array_equal(logits(recipes["from_equinox"](sizes, module)), logits(model))


def test_nnx(recipes: dict[str, Any], model: sinkjax.Model) -> None:
    own = model.params["layers"]
    stacked: dict[str, Any] = {name: {"kernel": own[name]} for name in ("gate", "up", "down")}
    stacked |= {"attention_norm": {"scale": own["attn_norm"]}, "mlp_norm": {"scale": own["mlp_norm"]}}
    stacked["attention"] = {name: {"kernel": own[name[0]]} for name in ("query", "key", "value", "out")}
    state: dict[str, Any] = {
        "embed": {"embedding": model.params["embed"]},
        "norm": {"scale": model.params["final_norm"]},
        "layers": stacked,
    }
    if not model.config.tied:
        state["unembed"] = {"kernel": model.params["unembed"]}
    np.testing.assert_array_equal(logits(recipes["from_nnx"](model.config, state)), logits(model))
    state["layers"]["gate"]["kernel"] = state["layers"]["gate"]["kernel"][:2]
    with pytest.raises(SinkjaxError, match="gate"):
        recipes["from_nnx"](model.config, state)
