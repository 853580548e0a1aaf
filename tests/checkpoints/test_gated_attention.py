"""Qwen's gated attention (Qiu et al. 2025): a Qwen3 whose projection of queries has the gates of the heads' outputs too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file, save_file

import sinkjax
from sinkjax.checkpoints.hf_config import read_config
from sinkjax.errors import SinkjaxError
from tests.model import families as small
from tests.model import reference

GROUPS, GROUP, HEAD_DIM = 2, 3, 4
TOKENS = np.random.default_rng(1).integers(2, small.VOCABULARY, 11)
KINDS = {"headwise": 1, "elementwise": HEAD_DIM}  # gates per head


class GatedQueries(torch.nn.Linear):
    """A projection of queries and gates, ordered by group of queries; it returns the queries and keeps the gates."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        groups = super().forward(x).unflatten(-1, (GROUPS, -1))
        queries, gates = groups[..., : GROUP * HEAD_DIM], groups[..., GROUP * HEAD_DIM :]
        self.gates = gates.reshape(*x.shape[:-1], GROUPS * GROUP, -1)
        return queries.flatten(-2)


def gated(kind: str) -> transformers.PreTrainedModel:
    """A Qwen3 of transformers with a gate, which that library does not have; its file states the gate."""
    config = transformers.Qwen3Config(
        vocab_size=small.VOCABULARY, hidden_size=12, intermediate_size=20, num_hidden_layers=small.LAYERS,
        num_attention_heads=GROUPS * GROUP, num_key_value_heads=GROUPS, head_dim=HEAD_DIM, max_position_embeddings=32,
        rope_parameters={"rope_theta": 100.0, "rope_type": "default"}, tie_word_embeddings=False,
        **{f"{kind}_attn_output_gate": True, "use_qk_norm": True}, **small.EAGER,
    )  # fmt: skip
    model = transformers.AutoModelForCausalLM.from_config(config, **small.EAGER)
    for layer in model.model.layers:
        attention = layer.self_attn
        queries = GatedQueries(12, GROUPS * GROUP * (HEAD_DIM + KINDS[kind]), bias=False)
        attention.q_proj = queries

        def gate(module: Any, inputs: tuple, queries: GatedQueries = queries) -> torch.Tensor:
            heads = inputs[0].unflatten(-1, (GROUPS * GROUP, HEAD_DIM))
            return (heads * torch.sigmoid(queries.gates)).flatten(-2)

        attention.o_proj.register_forward_pre_hook(gate)
    noise = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.double().eval().parameters():
            drawn = torch.randn(parameter.shape, generator=noise, dtype=torch.float64)
            parameter.copy_(drawn * parameter.shape[-1] ** -0.5 if parameter.ndim > 1 else 0.3 * drawn + 1)
    return model


@pytest.mark.apart
@pytest.mark.parametrize("kind", KINDS)
def test_equal_to_the_published_code_and_the_file_is_written_back(kind: str, tmp_path: Path) -> None:
    with reference.without_float32_casts():
        theirs = gated(kind)
        theirs.save_pretrained(tmp_path)
        want = small.observe(theirs, TOKENS[None])
    probe = sinkjax.Probe(attention=range(small.LAYERS), capture=(sinkjax.Capture(sinkjax.Site.RESID),))
    with jax.enable_x64(True):
        model = sinkjax.load(tmp_path, dtype="float64")
        out = sinkjax.forward(model.params, TOKENS[None], model.config, probe=probe)
        for name, found in (("logits", out.logits), ("hidden", out.record["resid"]), ("attention", out.record["attention"])):
            np.testing.assert_allclose(found[0], want[name][0, -len(found[0]) :], rtol=0, atol=1e-9, err_msg=name)
        written = sinkjax.to_arrays(model, family="qwen3")
    for name, array in load_file(tmp_path / "model.safetensors").items():
        np.testing.assert_array_equal(written[name], array, err_msg=name)


def test_contradictions_are_refused_and_no_norm_is_read(tmp_path: Path) -> None:
    gated("headwise").save_pretrained(tmp_path)
    values = small.stated(tmp_path)
    with pytest.raises(SinkjaxError, match="'headwise_attn_output_gate' and 'elementwise_attn_output_gate'"):
        read_config(values | {"elementwise_attn_output_gate": True}, "config.json")
    for key in ("attention_bias", "qkv_bias"):
        with pytest.raises(SinkjaxError, match=f"'{key}' .*False"):
            read_config(values | {key: True}, "config.json")
    assert read_config(values | {"use_qk_norm": False}, "config.json")[0].qk_norm is None
    wrong = load_file(tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(values | {"headwise_attn_output_gate": False}))
    save_file(wrong, tmp_path / "model.safetensors")
    with pytest.raises(SinkjaxError, match=r"q_proj.weight .* has shape \(30, 12\)"), jax.enable_x64(True):
        sinkjax.load(tmp_path, dtype="float64")
