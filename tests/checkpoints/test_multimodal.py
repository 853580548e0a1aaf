"""Models with a text part of a known family: the logits of text alone are those of transformers, and the rest is listed."""

import json
from typing import Any

import jax
import numpy as np
import pytest
import torch
import transformers as hf

import sinkjax
from sinkjax.checkpoints.hf_config import read_config
from sinkjax.checkpoints.multimodal import WHOLES, text_part
from tests.checkpoints import files
from tests.checkpoints.files import without
from tests.model import reference

SIZES = without(files.SIZES, "rms_norm_eps") | {"vocab_size": 40}
EYE: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
EYE |= {"image_size": 28, "patch_size": 14}
QWEN = SIZES | {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 0, 1]}}
DEEP = {"depth": 1, "hidden_size": 16, "out_hidden_size": 16, "intermediate_size": 16, "num_heads": 2}
DRAWS = {
    "gemma3": lambda: hf.Gemma3Config(
        text_config=hf.Gemma3TextConfig(
            **SIZES, head_dim=8, sliding_window=5, query_pre_attn_scalar=7, layer_types=["sliding_attention", "full_attention"]
        ).to_dict(),
        vision_config=EYE,
    ),
    "mistral3": lambda: hf.Mistral3Config(
        text_config={"model_type": "mistral", "head_dim": 8, "sliding_window": None, **SIZES},
        vision_config={"model_type": "pixtral", "head_dim": 8, **EYE},
    ),
    "llava": lambda: hf.LlavaConfig(
        text_config={"model_type": "llama", **SIZES}, vision_config={"model_type": "clip_vision_model", **EYE}
    ),
    "qwen2_vl": lambda: hf.Qwen2VLConfig(
        text_config=QWEN, vision_config={"depth": 1, "embed_dim": 16, "hidden_size": 16, "num_heads": 2, "mlp_ratio": 1}
    ),
    "qwen2_5_vl": lambda: hf.Qwen2_5_VLConfig(text_config=QWEN, vision_config=DEEP),
    "qwen3_vl": lambda: hf.Qwen3VLConfig(
        text_config=QWEN | {"head_dim": 4}, vision_config=DEEP | {"deepstack_visual_indexes": [0]}
    ),
    "idefics3": lambda: hf.Idefics3Config(text_config={"model_type": "llama", **SIZES}, vision_config=EYE),
    "smolvlm": lambda: hf.SmolVLMConfig(text_config={"model_type": "llama", **SIZES}, vision_config=EYE),
    "internvl": lambda: hf.InternVLConfig(
        text_config={"model_type": "qwen2", **SIZES}, vision_config=EYE | {"image_size": [28, 28], "patch_size": [14, 14]}
    ),
}


def live(config):
    torch.manual_seed(0)
    model = hf.AutoModelForImageTextToText.from_config(config, attn_implementation="eager").double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) / (weight.shape[-1] ** 0.5 if weight.ndim > 1 else 5))
    return model


@pytest.mark.parametrize("kind", WHOLES)
def test_text_alone_equals_transformers(kind, tmp_path):
    model = live(DRAWS[kind]())
    model.save_pretrained(tmp_path)
    tokens = np.random.default_rng(0).integers(2, 40, (1, 9))
    with torch.no_grad(), reference.without_float32_casts():
        want = model(torch.tensor(tokens)).logits.numpy()
    with jax.enable_x64(True):
        found = [sinkjax.load(tmp_path, dtype="float64"), sinkjax.from_transformers(model)]
        for own in found:
            np.testing.assert_allclose(sinkjax.forward(own, tokens).logits, want, atol=1e-6)
    for own in found:
        assert own.source["part_of"] == kind
        assert sum(own.source["left_out"].values()) == sum("vis" in name or "project" in name for name in model.state_dict())
    assert found[0].source["sha256"] == found[1].source["sha256"]


def test_the_released_spelling_of_qwen2_vl_has_no_text_config():
    flat = SIZES | {"model_type": "qwen2_vl", "hidden_act": "silu", "rms_norm_eps": 1e-6, "tie_word_embeddings": True}
    flat |= {"rope_theta": 1e6, "use_sliding_window": False, "vision_config": {"depth": 32}, "image_token_id": 151655}
    plain = read_config(without(flat, "vision_config", "image_token_id") | {"model_type": "qwen2"}, "config.json")[0]
    values, omitted, whole = text_part(flat | {"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}}, "config.json")
    assert (read_config(values, "config.json", assume=omitted)[0], whole) == (plain, "qwen2_vl")


def test_what_a_released_gemma_3_omits_is_assumed_and_said():
    text = {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34}
    text |= {"rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024}
    values, omitted, _ = text_part({"model_type": "gemma3", "text_config": text, "vision_config": {}}, "config.json")
    config, assumed = read_config(values, "config.json", assume=omitted)
    assert (config.heads, config.kv_heads, config.head_dim, config.vocab_size) == (8, 4, 256, 262208)
    assert assumed["num_attention_heads"] == 8
    assert config == read_config(json.loads(hf.Gemma3TextConfig(**text).to_json_string()), "config.json")[0]
