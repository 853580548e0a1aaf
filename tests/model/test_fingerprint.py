"""The identity of weights: its value, and that it is computed in pieces."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sinkjax.checkpoints.architectures import architecture
from sinkjax.model import params
from sinkjax.model.fingerprint import fingerprints


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", [(5,), (96, 10), (7, 64), (3, 5), (4, 6, 8), (2, 3, 4, 5)], ids=str)
def test_the_value_is_that_of_the_whole_leaf(rng, dtype: str, shape: tuple[int, ...]) -> None:
    leaf = jnp.asarray(rng.standard_normal(shape), dtype)
    bits = np.asarray(leaf).view(f"uint{8 * leaf.dtype.itemsize}")
    words = bits.astype(np.uint32) ^ (bits >> (4 * leaf.dtype.itemsize)).astype(np.uint32)
    for place in np.indices(shape).astype(np.uint32):
        words = (words ^ place) * np.uint32(0x9E3779B1)
        words ^= words >> 15
    assert int(fingerprints({"leaf": leaf})["leaf"]) == int(words.sum(dtype=np.uint32))


def test_a_float32_model_needs_few_bytes_beside_its_weights() -> None:
    weights = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, "float32"), params.abstract(architecture("pythia-160m").config)
    )
    memory = fingerprints.lower(weights).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 0.02 * memory.argument_size_in_bytes
