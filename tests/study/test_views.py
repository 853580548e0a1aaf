"""The views that studies share hold the numbers of a store, at the place that their choices name."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.study import views
from sinkjax.viewing.maps import strongest
from tests.study.tiny import HEADS, LAYERS, SENTENCE, write_model

LENGTH = 12


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, xarray.Dataset]:
    """Attention as `views.maps_probe` and as `Probe(attention=...)` measure it, and activations: of two edits on two prompts."""
    model = sinkjax.load(write_model(tmp_path_factory.mktemp("model")))
    tokens, lengths = sinkjax.encode(model, [SENTENCE, "short"], bos="none", length=LENGTH)
    edits = [sinkjax.compose(label="none"), sinkjax.mask_key(0)]
    texts = [model.tokenizer.tokens(row[:length]) for row, length in zip(tokens, lengths, strict=True)]
    probes = {
        "all": dataclasses.replace(views.maps_probe(LENGTH, range(LAYERS)), resid_max=False),
        "some": sinkjax.Probe(attention=(0, 2)),
        "both": views.maps_probe(LENGTH, range(LAYERS)),
    }
    return {
        name: sinkjax.sweep(model, tokens, edits, probe=probe, lengths=lengths, progress=False).assign_attrs(
            study={"token_texts": texts}
        )
        for name, probe in probes.items()
    }


def test_attention_stands_where_its_choices_say(stores):
    shown = views.maps("a", stores["all"])
    (panel,) = shown.panels
    assert shown.runs == ["none", "mask_key(key=0)"]
    assert {name: len(labels) for name, labels in panel.choices.items()} == {"prompt": 2, "layer": LAYERS, "head": HEADS + 1}
    stored = stores["all"]["attention"].values
    np.testing.assert_allclose(panel.values[1, 0, 2, 1 + 3, 7, :8], stored[1, 0, 2, 3, 7, :8], atol=1e-7)
    np.testing.assert_allclose(panel.values[0, 0, 1, 0, 7, :8], stored[0, 0, 1, :, 7, :8].mean(0), atol=1e-6)
    assert panel.values[1, 0, 0, 0, 7, 0] == 0  # masked
    assert np.nansum(panel.values[0, 0, 0, 0, 7]) == pytest.approx(1)
    assert shown.start["layer"] == strongest(np.where(np.tri(LENGTH, dtype=bool), stored[0, 0], np.nan))


def test_keys_that_a_query_cannot_see_and_pads_are_missing(stores):
    shown = views.maps("a", stores["all"])
    values, causal = shown.panels[0].values, np.tri(LENGTH, dtype=bool)
    np.testing.assert_array_equal(np.isfinite(values[0, 0, 0, 0]), causal)
    np.testing.assert_array_equal(np.isfinite(values[0, 1, 0, 0]), causal & (np.arange(LENGTH) < len("short"))[:, None])
    assert shown.tokens[1] == list("short")
