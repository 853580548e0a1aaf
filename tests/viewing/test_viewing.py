"""What a notebook shows of a prompt before and after an edit: the numbers of `forward`, no text as markup, without a network."""

from __future__ import annotations

import json
import re
from html import unescape

import numpy as np
import pytest

import sinkjax
from sinkjax.viewing.maps import DECADES, Maps, strongest
from tests.viewing.test_maps import decoded

PROMPT = "They sent for <b>Ness</b></script> at half past two."


@pytest.fixture(scope="module")
def model():
    return sinkjax.load("mini-softmax")


@pytest.fixture(scope="module")
def shown(model) -> Maps:
    return sinkjax.show(model, PROMPT, sinkjax.mask_key(0).named('"masked" <i>'), length=64)


def held(maps: Maps) -> dict:
    """The data of a page."""
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', maps.html(), re.DOTALL)[1])


def test_the_maps_are_those_of_the_forward_pass_with_and_without_the_edit(model, shown):
    tokens, lengths = sinkjax.encode(model, [PROMPT], bos="model", length=64)
    T = int(lengths[0])
    probe, data = sinkjax.Probe(attention=True, resid_max=True), held(shown)
    assert data["runs"] == ["no edit", 'with "masked" <i>']
    assert data["tokens"] == [model.tokenizer.tokens(tokens[0, :T])]
    for run, edits in enumerate(((), sinkjax.mask_key(0))):
        record = sinkjax.forward(model.params, tokens, model.config, edits, probe, lengths).record
        want = np.asarray(record["attention"])[0, :, :, :T, :T]
        L, H = want.shape[:2]
        got = decoded(data["panels"][0], (2, L, H + 1, T, T))[run]
        below = np.tri(T, dtype=bool)
        if run == 0:
            assert data["choices"][0]["start"] == strongest(np.where(below, want, np.nan))
        np.testing.assert_allclose(got[:, 1:, below], want[..., below], atol=0.005)
        np.testing.assert_allclose(got[:, 0, below], want.mean(axis=1)[:, below], atol=0.005)
        assert np.isnan(got[..., ~below]).all()
        both = decoded(data["panels"][1], (2, L + 1, T))
        want = np.maximum(np.asarray(record["resid_max"])[0, :, :T], both.max() / DECADES)  # smaller values share a code
        np.testing.assert_allclose(both[run], want, rtol=0.02)


def test_no_text_of_a_prompt_or_edit_becomes_markup_or_leaves_the_frame(shown):
    frame = shown._repr_html_()
    assert frame.count("<") == 2  # the frame alone
    (page,) = re.findall(r'srcdoc="([^"]*)"', frame)
    assert unescape(page) == shown.html()
    assert "<b>" not in shown.html()
    assert shown.html().count("</script>") == 2


def test_a_record_shows_what_it_holds_alone_and_beside_another(model):
    tokens, lengths = sinkjax.encode(model, ["a b", "c d"], bos="model", length=4)
    probe = sinkjax.Probe(attention_received=True, resid_norm=True)
    plain, masked = (
        sinkjax.forward(model.params, tokens, model.config, edits, probe, lengths).record for edits in ((), sinkjax.mask_key(0))
    )
    alone = plain.show(prompt=1)
    assert [panel.row for panel in alone.panels] == ["layer", "depth"]
    received = np.asarray(plain["attention_received"])[1].mean(axis=1)
    np.testing.assert_allclose(alone.panels[0].values[0], received)
    both = plain.show(masked, tokens=["<|bos|>", "a", "b", "c"])
    assert (both.runs, both.tokens) == (["before", "after"], [["<|bos|>", "a", "b", "c"]])
    chosen = sinkjax.Probe(attention=(1, 3))
    record = sinkjax.forward(model.params, tokens, model.config, (), chosen, lengths).record
    assert record.show(layers=(1, 3)).panels[0].choices["layer"] == ["1", "3"]
