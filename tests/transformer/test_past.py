"""A past gives what transformers gives for its tokens in front of the text, in every family, and its file is their cache."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import DynamicCache

import sinkjax
from tests.model import families as small
from tests.model import reference
from tests.transformer.pasts import FRONT, LENGTHS, TEXT

pytestmark = pytest.mark.apart


@pytest.mark.parametrize("family", small.DRAWS)
def test_every_family_reads_a_past_like_its_tokens(family: str, tmp_path: Path) -> None:
    small.write_model(family, 1, tmp_path / "model")
    with jax.enable_x64(True):
        model = sinkjax.load(tmp_path / "model", dtype="float64")
        long = any(hasattr(rope.scaling, "long") for rope in model.config.ropes)
        front = FRONT[:1] if long else FRONT
        prefix = sinkjax.sink_prefix(model, front)
        found = np.asarray(sinkjax.forward(model, TEXT, lengths=LENGTHS, past=prefix).logits)
        prefix.save(tmp_path / "prefix.safetensors")
        again = sinkjax.load_prefix(tmp_path / "prefix.safetensors")
    np.testing.assert_array_equal(again.keys, prefix.keys)
    np.testing.assert_array_equal(again.values, prefix.values)
    assert (again.tokens, again.dims) == (front, prefix.dims)
    stored = load_file(tmp_path / "prefix.safetensors")
    with reference.without_float32_casts(), torch.no_grad():
        theirs = small.read_model(tmp_path / "model")
        for b, length in enumerate(LENGTHS):
            want = theirs(torch.tensor([[*front, *TEXT[b, :length]]]), use_cache=False).logits[0, len(front) :]
            np.testing.assert_allclose(found[b, :length], want, rtol=0, atol=1e-9)
        cache = theirs(torch.tensor([front]), past_key_values=DynamicCache()).past_key_values
    assert len(stored) == 2 * len(cache.layers)
    for number, layer in enumerate(cache.layers):
        for name in ("keys", "values"):
            np.testing.assert_allclose(stored[f"{name}.{number}"], getattr(layer, name), rtol=0, atol=1e-9)
