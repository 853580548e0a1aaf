"""Where a block has its norms and how it joins its heads, beside a loop in numpy and beside transformers (Gemma 2's sandwich)."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest

import sinkjax
from sinkjax import Capture, Probe, SinkjaxError, Site
from sinkjax.model import params
from sinkjax.model.config import Config, RMSNorm
from sinkjax.model.positions import Learned
from sinkjax.model.rotary import Rope
from sinkjax.transformer.cost import block_flops
from tests.model import oracle
from tests.model.variants import bare, draw

TOKENS = np.random.default_rng(0).integers(61, size=(1, 11))


@pytest.mark.parametrize(
    "changes",
    [
        {"norm_place": "post"},
        {"norm_place": "sandwich"},
        {"summed_heads": True},
        {"summed_heads": True, "norm_place": "post", "gated_mlp": False, "activation": "relu", "position": Learned()},
    ],
    ids=str,
)
def test_every_kind_of_block_gives_what_a_loop_gives(tiny_config, changes: dict) -> None:
    config = replace(tiny_config, **changes)
    weights = draw(config)
    with jax.enable_x64(True):
        found = sinkjax.forward(weights, TOKENS, config).logits[0]
    np.testing.assert_allclose(found, oracle.logits(weights, TOKENS[0], config), rtol=1e-9, atol=1e-9)


def test_a_sandwich_is_that_of_gemma_2() -> None:
    import torch
    import transformers

    stated = {"num_hidden_layers": 2, "hidden_size": 24, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6}
    stated |= {"intermediate_size": 40, "vocab_size": 61, "rms_norm_eps": 1e-5, "query_pre_attn_scalar": 6}
    stated |= {"attn_logit_softcapping": None, "final_logit_softcapping": None, "tie_word_embeddings": False}
    theirs = transformers.Gemma2Config(**stated, layer_types=["full_attention"] * 2, attn_implementation="eager")
    torch.manual_seed(0)
    gemma = transformers.Gemma2ForCausalLM(theirs).double().eval()
    state = {name: 0.3 * torch.randn_like(tensor) for name, tensor in gemma.state_dict().items() if "inv_freq" not in name}
    gemma.load_state_dict(state, strict=False)
    arrays = {name.removeprefix("model."): tensor.numpy() for name, tensor in state.items()}

    def layers(name: str, heads: int = 0, gain: bool = False) -> np.ndarray:
        rows = [arrays[f"layers.{layer}.{name}.weight"] for layer in range(2)]
        if gain:
            return np.stack(rows) + 1  # Gemma stores what its gains are more than 1
        return np.stack([row.T.reshape(24, heads, 6) if heads else row.T for row in rows])

    blocks = {"q": layers("self_attn.q_proj", 4), "k": layers("self_attn.k_proj", 2), "v": layers("self_attn.v_proj", 2)}
    blocks |= {"o": layers("self_attn.o_proj").reshape(2, 4, 6, 24)}
    blocks |= {part: layers(f"mlp.{part}_proj") for part in ("gate", "up", "down")}
    blocks |= {"attn_norm": layers("input_layernorm", gain=True), "mlp_norm": layers("pre_feedforward_layernorm", gain=True)}
    blocks |= {"attn_out_norm": layers("post_attention_layernorm", gain=True)}
    blocks |= {"mlp_out_norm": layers("post_feedforward_layernorm", gain=True)}
    weights = {"layers": blocks, "final_norm": arrays["norm.weight"] + 1, "unembed": arrays["lm_head.weight"].T}
    weights["embed"] = state["model.embed_tokens.weight"].numpy() * 24**0.5
    sizes = {"layers": 2, "width": 24, "heads": 4, "kv_heads": 2, "head_dim": 6, "mlp_width": 40, "vocab_size": 61}
    config = Config(
        **sizes,
        context=32,
        norm=RMSNorm(1e-5),
        position=Rope(10_000.0),
        activation="gelu_tanh",
        tied=False,
        norm_place="sandwich",
    )
    with jax.enable_x64(True), torch.no_grad():
        want = gemma(torch.tensor(TOKENS)).logits.numpy()
        np.testing.assert_allclose(sinkjax.forward(weights, TOKENS, config).logits, want, rtol=1e-6, atol=1e-6)


def test_sites_are_what_is_added_and_what_the_next_block_gets(tiny_config) -> None:
    """Of a sandwich, ATTN_OUT and MLP_OUT add up to RESID; after a norm behind the sum, RESID has the norm of its gain."""
    probe = Probe(capture=tuple(Capture(site) for site in (Site.ATTN_OUT, Site.MLP_OUT, Site.RESID, Site.EMBED)))
    sandwich, post = replace(tiny_config, norm_place="sandwich"), replace(tiny_config, norm_place="post")
    with jax.enable_x64(True):
        record = sinkjax.forward(draw(sandwich), TOKENS, sandwich, (), probe).record
        np.testing.assert_allclose(
            np.cumsum(record["attn_out"] + record["mlp_out"], axis=1) + np.asarray(record["embed"])[:, None],
            record["resid"],
            rtol=1e-9,
            atol=1e-9,
        )
        scaled = sinkjax.edit("mlp_out", "scale", 3.0, layers=2)
        assert (sinkjax.forward(draw(sandwich), TOKENS, sandwich, scaled).logits != 0).all()
        dropped = sinkjax.forward(draw(sandwich), TOKENS, sandwich, sinkjax.drop_mlp(4), probe).record
        assert not np.asarray(dropped["mlp_out"])[:, :, 4].any()
        gains = draw(post)["layers"]["mlp_norm"]
        normed = np.asarray(sinkjax.forward(draw(post), TOKENS, post, (), probe).record["resid"])[0] / gains[:, None]
        np.testing.assert_allclose(np.mean(normed**2, axis=-1), 1, rtol=1e-3)


def test_blocks_have_the_parameters_they_use(tiny_config) -> None:
    whole = params.abstract(tiny_config)
    post = params.abstract(replace(tiny_config, norm_place="post"))
    assert set(post) == set(whole) - {"final_norm"}
    assert set(post["layers"]) == set(whole["layers"])
    sandwich = replace(tiny_config, norm_place="sandwich")
    assert set(params.abstract(sandwich)["layers"]) == set(whole["layers"]) | {"attn_out_norm", "mlp_out_norm"}
    alone = params.abstract(replace(sandwich, mlp_width=None))["layers"]
    assert set(alone) & {"attn_out_norm", "mlp_out_norm"} == {"attn_out_norm"}
    summed = replace(tiny_config, summed_heads=True, gated_mlp=False)
    assert params.abstract(summed)["layers"]["o"].shape == (3, 8, 32)
    matrices = sum(leaf.size // 3 for name, leaf in params.init(summed, seed=0)["layers"].items() if "norm" not in name)
    assert block_flops(summed, 7) == 2 * matrices + 4 * 7 * 6 * 8


def test_blocks_that_cannot_be() -> None:
    with pytest.raises(SinkjaxError, match=r'norm_place="post" .*norm is None'):
        bare(norm_place="post")
    with pytest.raises(SinkjaxError, match=r"'sandwitch' .*'sandwich'"):
        bare(norm_place="sandwitch", norm=RMSNorm(1e-5))
