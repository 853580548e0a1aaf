"""Every family that llama.cpp writes, as a small random model in a GGUF file: the logits are those of transformers."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import numpy as np
import pytest

import sinkjax
from sinkjax.checkpoints.family import families
from sinkjax.checkpoints.gguf import read_gguf_checkpoint
from sinkjax.errors import SinkjaxError
from sinkjax.model.config import Caps
from tests.checkpoints.files import write_gguf
from tests.model import as_gguf, reference
from tests.model import families as small

pytestmark = pytest.mark.apart
TOKENS = np.random.default_rng(1).integers(2, small.VOCABULARY, max(small.LENGTHS))
# The converter writes the flat table of OLMo 3's files, which scales layers without a window only.
OLMO3 = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 8, "attention_factor": 1.25}
# Options of the draws that llama.cpp has no tensor or key for.
LEFT_OUT = {
    "cohere": lambda values: values.update(tie_word_embeddings=True),
    "cohere2": lambda values: values.update(tie_word_embeddings=True),
    "gemma": lambda values: values.update(tie_word_embeddings=True),
    "gemma2": lambda values: values.update(tie_word_embeddings=True),
    "hunyuan_v1_dense": lambda values: values.update(rope_parameters={"rope_theta": 100.0, "rope_type": "default"}),
    "mpt": lambda values: values["attn_config"].update(softmax_scale=None),
    "olmo3": lambda values: values.update(rope_parameters=OLMO3),
    "phi": lambda values: values.update(qk_layernorm=False),
}
# llama.cpp has no name for the second norm of a Falcon without a parallel block.
UNNAMED = ("falcon", next(seed for seed in small.seeds("falcon") if not small.falcon(small.Turn(seed)).parallel_attn))
CASES = [
    pytest.param(family, seed, id=f"{family}-{seed}", marks=[pytest.mark.long] if seed else [])
    for family in as_gguf.ARCHITECTURES
    for seed in small.seeds(family)
    if (family, seed) != UNNAMED
]


def drawn(family: str, seed: int, folder: Path) -> None:
    """A folder of a random model whose numbers a GGUF can hold."""
    config = small.DRAWS[family](small.Turn(seed))
    if family in LEFT_OUT:
        values = config.to_dict()
        LEFT_OUT[family](values)
        config = type(config).from_dict(values)
    if (getattr(config, "rope_parameters", None) or {}).get("rope_type") == "longrope":
        config.rope_parameters["attention_factor"] = 1.19
    small.write_random(config, seed, folder)
    as_gguf.round_folder(folder)


@pytest.mark.parametrize(("family", "seed"), CASES)
def test_equal_to_transformers(family: str, seed: int, tmp_path: Path) -> None:
    drawn(family, seed, tmp_path / "hf")
    values = small.stated(tmp_path / "hf")
    assumed = as_gguf.write_as_gguf(tmp_path / "hf", tmp_path / "m.gguf")
    with jax.enable_x64(True):
        model = sinkjax.load(tmp_path / "m.gguf", dtype="float64", assume=assumed)
        found = np.asarray(sinkjax.forward(model.params, TOKENS[None], model.config).logits[0])
    with reference.without_float32_casts():
        want = small.observe(small.read_model(tmp_path / "hf"), TOKENS[None])["logits"][0]
    is_llama = family == "mistral" and not values["sliding_window"]  # Mistral's files differ from Llama's only in this
    assert model.source["model_type"] == ("llama" if is_llama else family)
    assert np.abs(found - want).max() < 1e-9, json.dumps(values)


@pytest.mark.parametrize(
    ("architecture", "layers", "scalar"), [("gemma2", 46, 96), ("gemma2", 42, 128), ("gemma3", 62, 96), ("gemma3", 48, 128)]
)
def test_the_scale_of_scores_of_the_27b_gemmas_follows_from_their_width(
    architecture: str, layers: int, scalar: int, tmp_path: Path
) -> None:
    """Gemma 2 27B has 46 layers and Gemma 3 27B has 62, as llama.cpp tells them apart; no weight is needed for their config."""
    metadata = {"block_count": layers, "context_length": 64, "embedding_length": 384, "feed_forward_length": 8, "vocab_size": 9}
    metadata |= {f"attention.{key}": value for key, value in (("head_count", 4), ("head_count_kv", 2), ("key_length", 128))}
    metadata |= {"attention.layer_norm_rms_epsilon": 1e-6, "attention.sliding_window": 16}
    config = read_gguf_checkpoint(write_gguf(tmp_path / "m.gguf", metadata, {}, architecture)).config
    assert config.score_scale == (None if scalar == 128 else scalar**-0.5)
    assert config.caps == (Caps(50.0, 30.0) if architecture == "gemma2" else Caps())


@pytest.mark.parametrize("stated", ["pattern", "period", "nothing"])
def test_an_olmo_with_a_window_is_an_olmo_3_and_scales_only_layers_without(stated: str, tmp_path: Path) -> None:
    """Three of four layers have the window, however a file says so; no weight is needed for the config."""
    metadata = {"block_count": 5, "context_length": 65536, "embedding_length": 32, "feed_forward_length": 8, "vocab_size": 9}
    metadata |= {"attention.head_count": 4, "attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": 5e5}
    metadata |= {"rope.scaling.type": "yarn", "rope.scaling.factor": 8.0, "rope.scaling.original_context_length": 8192}
    metadata |= {"rope.scaling.attn_factor": 1.25, "attention.sliding_window": 16}
    pattern = {"pattern": [True, True, True, False, True], "period": 4}
    metadata |= {"attention.sliding_window_pattern": pattern[stated]} if stated in pattern else {}
    read = read_gguf_checkpoint(write_gguf(tmp_path / "m.gguf", metadata, {}, "olmo2"))
    assert read.source["model_type"] == "olmo3"
    assert read.config.windows == (16, 16, 16, None, 16)
    assert [read.config.rope_of(layer).scaling is not None for layer in range(5)] == [False, False, False, True, False]
    assert read.config.rope_of(3).scaling.attention_factor == 1.25
    del metadata["attention.sliding_window"]
    with pytest.raises(SinkjaxError, match=r"attn_factor|sliding_window_pattern"):
        read_gguf_checkpoint(write_gguf(tmp_path / "m.gguf", metadata, {}, "olmo2"))


def test_every_family_that_llama_cpp_has_is_written_here() -> None:
    named = {name: family.gguf.architecture for name, family in families().items() if family.gguf}
    assert named == as_gguf.ARCHITECTURES
    assert families().keys() - named.keys() == {"apertus", "glm", "helium", "ministral", "ministral3", "opt"} | {
        "flex_olmo",
        "granitemoehybrid",
        "vaultgemma",
    }
