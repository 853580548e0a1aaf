"""background/windows: attention before and beyond a window by hand, the edit of one dim, and a run on a model with windows."""

from __future__ import annotations

import numpy as np
import pytest

import sinkjax
from sinkjax.papers.background import windows as own
from tests.study.tiny import write_model, write_text

WINDOW, LENGTH = 6, 24


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("windows")
    write_model(
        folder / "model",
        model_type="mistral",
        architectures=["MistralForCausalLM"],
        sliding_window=WINDOW,
        max_position_embeddings=256,
    )
    write_text(folder / "text.txt")
    return folder


@pytest.mark.parametrize("lengths", [(24, 20), (24, 13)])
def test_attention_is_that_of_full_maps_from_both_sets_of_queries(files, lengths):
    model, beyond = sinkjax.load(str(files / "model")), 10
    tokens = np.random.default_rng(0).integers(1, 250, (2, LENGTH)).astype(np.int32)
    probe = sinkjax.Probe(attention=(0, 1, 2), extra=(own.reaching(beyond),))
    record = sinkjax.forward(model.params, tokens, model.config, probe=probe, lengths=lengths).record
    for prompt, length in enumerate(lengths):
        maps = np.asarray(record["attention"])[prompt].mean(axis=1)  # layer, query, key
        after = length - beyond
        before = min(after, beyond)
        expected = np.stack([maps[:, beyond - before : beyond].mean(axis=1), maps[:, beyond:length].mean(axis=1)], axis=1)
        found = np.asarray(record["reaching"])[prompt]
        np.testing.assert_allclose(found[..., :length], expected[..., :length], atol=1e-6)
        assert (found[:, own.BEYOND, 0] == 0).all()  # key 0 has left every window
        np.testing.assert_allclose(found[..., :length].sum(axis=-1), 1, atol=1e-5)


def test_the_edit_makes_one_dim_ordinary(files):
    model = sinkjax.load(str(files / "model"))
    tokens = np.random.default_rng(1).integers(1, 250, (2, LENGTH)).astype(np.int32)
    typical = np.random.default_rng(2).standard_normal((model.config.layers, model.config.width)).astype(np.float32)
    probe = sinkjax.Probe(capture=(sinkjax.Capture("resid", name="stream"),))
    for tokens_of, chosen in (("first", slice(1)), ("later", slice(1, None)), ("all", slice(None))):
        edit = own.made_ordinary(tokens_of, 3, typical)
        stream = np.asarray(sinkjax.forward(model.params, tokens, model.config, edits=edit, probe=probe).record["stream"])
        there = np.isclose(stream, typical[None, :, None], rtol=1e-6).all(axis=(0, 1))  # position, dim
        assert there[chosen, 3].all()
        assert there.sum() == there[chosen, 3].size
