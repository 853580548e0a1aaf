"""A factor of 0 where a model may have one: read, with transformers' numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import torch
import transformers

import sinkjax
from sinkjax.checkpoints.hf_config import read_config
from sinkjax.checkpoints.load import open_checkpoint
from sinkjax.errors import SinkjaxError
from sinkjax.model.config import Multipliers
from tests.checkpoints.files import GGUF_METADATA, LLAMA, gguf_weights, random_weights, write_gguf
from tests.model import families as small

# family -> a change of its config.json, at any depth
ZEROS: dict[str, dict[str, Any]] = {
    "ministral3": {"rope_parameters": {"llama_4_scaling_beta": 0.0}},
    "granite": {"embedding_multiplier": 0.0, "residual_multiplier": 0},
    "cohere": {"logit_scale": 0.0},
    "gpt_oss": {"swiglu_alpha": 0.0},
    "mpt": {"attn_config": {"clip_qkv": 0.0}},
    "gpt_neox": {"rope_parameters": {"partial_rotary_factor": 0.0}},
}


@pytest.mark.parametrize("family", ZEROS)
def test_a_factor_of_zero_has_the_numbers_of_transformers(family: str, tmp_path: Path) -> None:
    values = json.loads(small.DRAWS[family](small.Turn(1)).to_json_string())
    for key, change in ZEROS[family].items():
        values[key] = {**values[key], **change} if isinstance(change, dict) else change
    config = transformers.CONFIG_MAPPING[family].from_dict(values)
    torch.manual_seed(0)
    live = transformers.AutoModelForCausalLM.from_config(config, **small.EAGER).double().eval()
    live.save_pretrained(tmp_path)
    tokens = np.arange(11)[None]
    with jax.enable_x64(True), torch.no_grad():
        ours = sinkjax.forward(sinkjax.load(tmp_path, dtype="float64"), tokens).logits
        np.testing.assert_allclose(ours, live(torch.tensor(tokens)).logits.numpy(), atol=1e-5)


@pytest.mark.parametrize(
    ("family", "change"),
    [("granite", {"logits_scaling": 0}), ("gemma2", {"query_pre_attn_scalar": 0}), ("gemma2", {"attn_logit_softcapping": 0.0})],
)
def test_a_divisor_of_zero_is_refused(family: str, change: dict[str, float]) -> None:
    values = json.loads(small.DRAWS[family](small.Turn(1)).to_json_string())
    with pytest.raises(SinkjaxError, match=rf"'{next(iter(change))}' .* must be a number above 0"):
        read_config(values | change, "config.json")


def test_a_scale_of_zero_in_a_gguf_means_none_as_in_llama_cpp(tmp_path: Path) -> None:
    scales = ("attention.scale", "embedding_scale", "residual_scale", "logit_scale")
    weights = gguf_weights(random_weights(LLAMA), 4, 2)
    for metadata in (dict.fromkeys(scales, 0.0), {"logit_scale": 1.0}):
        path = write_gguf(tmp_path / "m.gguf", GGUF_METADATA | metadata, weights, "granite")
        config = open_checkpoint(str(path)).config
        assert (config.multipliers, config.scale) == (Multipliers(), 0.5)
