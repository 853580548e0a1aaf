"""Every family that llama.cpp writes, as a small random model in a GGUF file: the logits are those of transformers."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import numpy as np
import pytest

import sinkjax
from sinkjax.checkpoints.family import families
from tests.model import as_gguf, reference
from tests.model import families as small

pytestmark = pytest.mark.apart
TOKENS = np.random.default_rng(1).integers(2, small.VOCABULARY, max(small.LENGTHS))
# Options of the draws that llama.cpp has no tensor or key for.
LEFT_OUT = {
    "gemma": lambda values: values.update(tie_word_embeddings=True),
    "gemma2": lambda values: values.update(tie_word_embeddings=True),
    "mpt": lambda values: values["attn_config"].update(softmax_scale=None),
    "phi": lambda values: values.update(qk_layernorm=False),
}
CASES = [
    pytest.param(family, seed, id=f"{family}-{seed}", marks=[pytest.mark.long] if seed else [])
    for family in as_gguf.ARCHITECTURES
    for seed in small.seeds(family)
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
    if family == "falcon" and not values["parallel_attn"]:
        pytest.skip("llama.cpp has no name for the second norm of a Falcon without a parallel block")
    assumed = as_gguf.write_as_gguf(tmp_path / "hf", tmp_path / "m.gguf")
    with jax.enable_x64(True):
        model = sinkjax.load(tmp_path / "m.gguf", dtype="float64", assume=assumed)
        found = np.asarray(sinkjax.forward(model.params, TOKENS[None], model.config).logits[0])
    with reference.without_float32_casts():
        want = small.observe(small.read_model(tmp_path / "hf"), TOKENS)["logits"]
    is_llama = family == "mistral" and not values["sliding_window"]  # Mistral's files differ from Llama's only in this
    assert model.source["model_type"] == ("llama" if is_llama else family)
    assert np.abs(found - want).max() < 1e-9, json.dumps(values)


def test_every_family_that_llama_cpp_has_is_written_here() -> None:
    named = {name: family.gguf.architecture for name, family in families().items() if family.gguf}
    assert named == as_gguf.ARCHITECTURES
    assert families().keys() - named.keys() == {"opt"}
