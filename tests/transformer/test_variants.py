"""Models with less in them: no norm, no rotation, no MLP, no sum; other normalisers; a gate. The one forward runs them.

A naive loop in numpy is the oracle.
"""

from __future__ import annotations

import dataclasses
import json

import jax
import numpy as np
import pytest

import sinkjax
from sinkjax import Capture, Probe, SinkjaxError, Site
from sinkjax.model import params
from sinkjax.model.config import NoPosition, RMSNorm
from sinkjax.model.heads import HeadGate
from sinkjax.model.normalisers import NAMED, ReLU, Softmax
from tests.model.variants import bare, draw, naive


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"residual": False, "layers": 1, "heads": 1, "kv_heads": 1},
        {"score_scale": None},
        {"normaliser": ReLU("index")},
        {"normaliser": NAMED["sink-logit"]},
        {"gate": HeadGate()},
        {"gate": HeadGate(), "normaliser": ReLU("index"), "residual": False},
    ],
    ids=str,
)
def test_attention_alone_gives_what_a_loop_gives(changes: dict) -> None:
    config = bare(**changes)
    weights, x = draw(config), np.random.default_rng(1).standard_normal((3, 9, 7))
    with jax.enable_x64(True):
        out = sinkjax.forward(weights, x, config, lengths=[9, 5, 9])
    assert out.logits is None
    for prompt, length in enumerate((9, 5, 9)):
        np.testing.assert_allclose(
            out.output[prompt, :length], naive(weights, x[prompt, :length], config), rtol=1e-12, atol=1e-12
        )


def test_unrolled_blocks_give_the_numbers_of_the_loop() -> None:
    config, x = bare(layers=3), np.random.default_rng(1).standard_normal((2, 9, 7))
    probe = Probe(attention=(0, 2), resid_norm=True)

    def both(weights: dict, unroll: bool) -> tuple:
        out = sinkjax.forward(weights, x, config, sinkjax.mask_key(0, layers=1), probe, unroll=unroll)
        return (out.output**2).mean(), dict(out.record)

    with jax.enable_x64(True):
        one, other = (jax.value_and_grad(both, has_aux=True)(draw(config), unroll) for unroll in (False, True))
        for first, second in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
            np.testing.assert_allclose(first, second, rtol=1e-12, atol=1e-12)


def test_what_is_absent_has_no_parameters(tiny_config) -> None:
    assert set(params.abstract(bare())) == {"layers"}
    assert set(params.abstract(bare())["layers"]) == {"q", "k", "v", "o"}
    whole = set(params.abstract(tiny_config)["layers"])
    no_norm = params.abstract(dataclasses.replace(tiny_config, norm=None))
    assert set(no_norm["layers"]) == whole - {"attn_norm", "mlp_norm"}
    assert "final_norm" not in no_norm
    no_mlp = params.abstract(dataclasses.replace(tiny_config, mlp_width=None))
    assert set(no_mlp["layers"]) == whole - {"mlp_norm", "gate", "up", "down"}
    gated = params.init(bare(gate=HeadGate(), normaliser=NAMED["sink-logit"]), seed=0, std=0.02)["layers"]
    assert gated["head_gate"].shape == (2, 7, 2)
    assert gated["normaliser"]["sink"].shape == (2, 2)
    assert not gated["normaliser"]["sink"].any()
    assert float(gated["head_gate"].std()) == pytest.approx(0.02, rel=0.5)


def test_each_part_of_a_llama_can_be_left_out_alone(tiny_params, tiny_config) -> None:
    """The norm by gains that do nothing to vectors of unit size, the MLP and the rotation by what makes them nothing."""
    tokens = np.arange(20).reshape(2, 10)
    layers = {name: leaf for name, leaf in tiny_params["layers"].items() if name not in ("mlp_norm", "gate", "up", "down")}
    without = dataclasses.replace(tiny_config, mlp_width=None)
    silent = tiny_params | {"layers": tiny_params["layers"] | {"down": 0 * tiny_params["layers"]["down"]}}
    np.testing.assert_array_equal(
        sinkjax.forward(tiny_params | {"layers": layers}, tokens, without).logits,
        sinkjax.forward(silent, tokens, tiny_config).logits,
    )
    nowhere = dataclasses.replace(tiny_config, position=NoPosition())
    still = sinkjax.set_positions(query=0, key=0)
    np.testing.assert_allclose(
        sinkjax.forward(tiny_params, tokens, nowhere).logits,
        sinkjax.forward(tiny_params, tokens, tiny_config, still).logits,
        rtol=1e-5,
        atol=1e-5,
    )
    plain = {name: leaf for name, leaf in tiny_params["layers"].items() if "norm" not in name}
    out = sinkjax.forward(
        {"layers": plain, "embed": tiny_params["embed"], "unembed": tiny_params["unembed"]},
        tokens,
        dataclasses.replace(tiny_config, norm=None),
        probe=Probe(capture=(Capture(Site.RESID, layers=(2,)),)),
    )
    last = out.record["resid"][:, 0]
    np.testing.assert_allclose(out.logits, np.asarray(last) @ np.asarray(tiny_params["unembed"]), rtol=1e-5, atol=1e-5)


def test_stored_results_of_earlier_versions_know_their_model_and_probe(tiny_config) -> None:
    """What identifies a store is unchanged for what could be stated before, and tells variants apart."""
    before = {
        "layers": 3,
        "width": 32,
        "heads": 6,
        "kv_heads": 2,
        "head_dim": 8,
        "mlp_width": 48,
        "vocab_size": 61,
        "context": 64,
    }
    before |= {"norm": {"eps": 1e-5}, "position": {"theta": 10_000.0, "scaling": None}, "activation": "silu", "tied": False}
    before |= {"qkv_bias": False, "out_bias": False, "mlp_bias": False, "windows": None}
    assert json.dumps(tiny_config.identity()) == json.dumps(before)
    flags = ("attention_received", "attention_share", "row_entropy", "query_key_cosine", "resid_max", "resid_norm")
    flags += ("resid_median", "resid_argmax", "query_norm", "key_norm", "value_norm", "nll")
    shown = ", ".join(f"{name}={name == 'nll'}" for name in flags)
    assert repr(Probe(nll=True)) == f"Probe({shown}, attention=(), capture=(), extra=())"
    assert repr(Probe(attention_received_bias=True)) != repr(Probe())
    variants = [bare(normaliser=entry) for entry in NAMED.values()] + [
        bare(gate=HeadGate()),
        bare(residual=False),
        bare(norm=RMSNorm(0)),
    ]
    known = {json.dumps(config.identity()) for config in variants}
    assert len(known) == len(variants)
    assert "normaliser" not in bare(normaliser=Softmax()).identity()


IMPOSSIBLE = {
    "normaliser .*sinkjax.model.normalisers, not 'softmax'": {"normaliser": "softmax"},
    "score_scale .*positive, .*not 0": {"score_scale": 0},
    "mlp_bias .*mlp_width is None": {"mlp_bias": True},
    "mlp_width .*at least 1, not 0": {"mlp_width": 0},
    "2 query heads .* 3 key-value": {"kv_heads": 3},
}


@pytest.mark.parametrize("message", IMPOSSIBLE)
def test_impossible_variants(message: str) -> None:
    with pytest.raises(SinkjaxError, match=message):
        bare(**IMPOSSIBLE[message])


def test_what_a_model_lacks_is_said(tiny_config) -> None:
    with pytest.raises(SinkjaxError, match=r"^this model has no MLP$"):
        bare().neurons  # noqa: B018 - it raises
    assert tiny_config.neurons
