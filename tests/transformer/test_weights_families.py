"""Edits of weights in every family: the numbers of transformers on the model whose weights were changed."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors.numpy import save_file

import sinkjax
from sinkjax import SinkjaxError, compose, edit_weights
from sinkjax.edits.weights import MATRICES, shape_of
from tests.edits.test_weights import changed
from tests.model import families as small
from tests.model import reference

pytestmark = pytest.mark.apart
TOKENS = np.random.default_rng(1).integers(2, small.VOCABULARY, (1, min(small.LENGTHS)))
LAYER = 1


@pytest.mark.parametrize("family", small.DRAWS)
def test_edited_matrices_of_a_block_give_the_numbers_of_transformers(family: str, tmp_path: Path) -> None:
    small.write_model(family, 0, tmp_path)
    with jax.enable_x64(True), reference.without_float32_casts():
        model = sinkjax.load(tmp_path, dtype="float64")
        refused, edits, other = set(), [], model
        for name in sorted(MATRICES.keys() & model.params["layers"].keys()):
            rows, cols = shape_of(name, model.config) if name_is_of_block(name, model) else (0, 0)
            if not rows:
                refused.add(name)
                continue
            where = np.array([rows - 1, 0]), np.array([1, cols - 1])

            def change(flat: np.ndarray, where=where) -> None:
                flat[np.ix_(*where)] *= -0.7

            edits.append(edit_weights(name, "scale", -0.7, layers=LAYER, rows=where[0].tolist(), cols=where[1].tolist()))
            other = changed(other, name, change, (LAYER,))
        found = sinkjax.forward(model, TOKENS, edits=compose(*edits)).logits[0]
        arrays = {name: np.ascontiguousarray(array) for name, array in sinkjax.to_arrays(other, family=family).items()}
        save_file(arrays, tmp_path / "model.safetensors", {"format": "pt"})
        theirs = small.read_model(tmp_path)
        wanted = small.observe(theirs, TOKENS[:1])["logits"][0]
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)
        assert np.abs(found - sinkjax.forward(model, TOKENS).logits[0]).max() > 1e-6
        for name in refused:
            with pytest.raises(SinkjaxError, match=f"parameter {name} of experts"):
                sinkjax.forward(model, TOKENS, edits=edit_weights(name, "set", 0.0, layers=LAYER))


def name_is_of_block(name: str, model: sinkjax.Model) -> bool:
    """Whether a matrix belongs to every token, and not to experts."""
    return model.config.experts is None or name in ("q", "k", "v", "o")
