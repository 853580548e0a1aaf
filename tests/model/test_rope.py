"""Rotary tables of published models, and the two indices that an edit can set apart."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from sinkjax.model import rope
from sinkjax.model.rotary import DynamicScaling, LinearScaling, Llama3Scaling, Rope, Scaling, YarnScaling
from tests.model.reference import without_float32_casts

LLAMA3 = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
YARN, MSCALE = {"rope_type": "yarn", "original_max_position_embeddings": 4096}, {"mscale": 0.707, "mscale_all_dim": 0.707}
PUBLISHED: dict[str, tuple[float, int, Scaling, dict]] = {
    "Llama-3.1-8B": (5e5, 128, Llama3Scaling(8.0, 1.0, 4.0, 8192), LLAMA3 | {"factor": 8.0}),
    "Llama-3.2-1B": (5e5, 64, Llama3Scaling(32.0, 1.0, 4.0, 8192), LLAMA3 | {"factor": 32.0}),
    "Yarn-Llama-2-7b-64k": (1e4, 128, YarnScaling(16.0, 4096), YARN | {"factor": 16.0}),
    "DeepSeek-V2": (1e4, 64, YarnScaling(40.0, 4096, **MSCALE), YARN | MSCALE | {"factor": 40.0}),
    "Vicuna-16k": (1e4, 128, LinearScaling(4.0), {"rope_type": "linear", "factor": 4.0}),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_frequencies_of_published_models(name: str) -> None:
    theta, head_dim, scaling, table = PUBLISHED[name]
    config = LlamaConfig(
        hidden_size=head_dim,
        num_attention_heads=1,
        head_dim=head_dim,
        max_position_embeddings=131072,
        rope_parameters={"rope_theta": theta, **table},
    )
    with without_float32_casts():
        want, want_factor = ROPE_INIT_FUNCTIONS[table["rope_type"]](config)
    with jax.enable_x64(True):
        have, factor = rope.frequencies(Rope(theta, scaling), head_dim, jnp.array([8]), jnp.float64)
        np.testing.assert_allclose(have[0], want.numpy(), rtol=1e-14)
    assert factor == pytest.approx(want_factor, rel=1e-15)


def test_dynamic_frequencies_belong_to_each_prompt_and_start_beyond_the_original_context() -> None:
    with jax.enable_x64(True):
        scaled, _ = rope.frequencies(Rope(1e4, DynamicScaling(2.0, 16)), 8, jnp.array([4, 16, 17, 32]), jnp.float64)
        plain, _ = rope.frequencies(Rope(1e4), 8, jnp.array([4]), jnp.float64)
    np.testing.assert_allclose(scaled[0], plain[0], rtol=1e-15)
    np.testing.assert_allclose(scaled[1], plain[0], rtol=1e-15)
    assert (scaled[2, 1:] < scaled[1, 1:]).all()
    assert (scaled[3, 1:] < scaled[2, 1:]).all()
    # Twice the context at factor 2: the base is 2 * 2 - 1 = 3 times as large, to the power of 8 / 6.
    np.testing.assert_allclose(scaled[3], (1e4 * 3 ** (8 / 6)) ** (-np.arange(0, 8, 2) / 8), rtol=1e-14)
