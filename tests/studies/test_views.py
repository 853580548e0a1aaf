"""The views that recipes share hold the numbers of a store, at the place that their choices name."""

from __future__ import annotations

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.experiments import views
from tests.studies.tiny import HEADS, LAYERS, SENTENCE, write_model

LENGTH = 12
EDITS = {"none": "no edit", "mask_key(key=0)": "masked"}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, xarray.Dataset]:
    """Attention as `views.probe` and as `Probe(attention=...)` measure it, and activations: of two edits on two prompts."""
    model = sinkjax.load(write_model(tmp_path_factory.mktemp("model")))
    tokens, lengths = sinkjax.encode(model, [SENTENCE, "short"], bos="none", length=LENGTH)
    edits = [sinkjax.compose(label="none"), sinkjax.mask_key(0)]
    texts = [model.tokenizer.tokens(row[:length]) for row, length in zip(tokens, lengths, strict=True)]
    probes = {"all": views.probe(LENGTH), "some": sinkjax.Probe(attention=(0, 2)), "resid": sinkjax.Probe(resid_max=True)}
    return {
        name: sinkjax.sweep(model, tokens, edits, probe=probe, lengths=lengths, progress=False).assign_attrs(
            study={"token_texts": texts}
        )
        for name, probe in probes.items()
    }


def test_attention_stands_where_its_choices_say(stores):
    view = views.attention("a", stores["all"], EDITS)
    assert {name: len(labels) for name, labels in view.choices.items()} == {
        "edit": 2,
        "prompt": 2,
        "layer": LAYERS,
        "head": HEADS + 1,
    }
    assert view.choices["edit"] == ["no edit", "masked"]
    stored = stores["all"]["attention"].values
    np.testing.assert_allclose(view.values[1, 0, 2, 1 + 3, 7, :8], stored[1, 0, 2, 3, 7, :8], atol=1e-7)
    np.testing.assert_allclose(view.values[0, 0, 1, 0, 7, :8], stored[0, 0, 1, :, 7, :8].mean(0), atol=1e-6)
    assert view.values[1, 0, 0, 0, 7, 0] == 0  # masked
    assert np.nansum(view.values[0, 0, 0, 0, 7]) == pytest.approx(1)


def test_keys_that_a_query_cannot_see_and_pads_are_missing(stores):
    view = views.attention("a", stores["all"], EDITS)
    np.testing.assert_array_equal(np.isfinite(view.values[0, 0, 0, 0]), np.tri(LENGTH, dtype=bool))
    short = len("short")
    np.testing.assert_array_equal(
        np.isfinite(view.values[0, 1, 0, 0]), np.tri(LENGTH, dtype=bool) & (np.arange(LENGTH) < short)[:, None]
    )
    assert view.tokens[1] == list("short")


def test_maps_of_chosen_layers_are_shown_under_their_numbers(stores):
    some, every = views.attention("a", stores["some"]), views.attention("a", stores["all"])
    assert some.choices["layer"] == ["0", "2"]
    np.testing.assert_allclose(some.values[:, :, 1], every.values[:, :, 2], atol=1e-6)
    assert "layers 0, 2," in some.caption


def test_fewer_tokens_can_be_shown(stores):
    assert views.attention("a", stores["all"], EDITS, tokens=5).values.shape[-2:] == (5, 5)
    assert views.activation("b", stores["resid"], EDITS, tokens=5).values.shape[-2:] == (LAYERS + 1, 5)


def test_activations_are_those_of_the_store(stores):
    view = views.activation("b", stores["resid"], {"mask_key(key=0)": "masked"})
    np.testing.assert_array_equal(view.values[0], stores["resid"]["resid_max"].values[1])
    assert (view.log, view.row_tokens) == (True, False)
    assert list(view.choices) == ["edit", "prompt"]
