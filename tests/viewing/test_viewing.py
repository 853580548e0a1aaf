"""What a notebook shows of a prompt before and after an edit: the numbers of `forward`, no text as markup, without a network."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

import numpy as np
import pytest

import sinkjax
from sinkjax.errors import SinkjaxError
from sinkjax.viewing.maps import DECADES, MapPanel, Maps, strongest
from tests.pages import complaints, requested
from tests.viewing.test_maps import decoded
from tests.viewing.views import chosen

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


def test_what_cannot_be_shown_says_why(model):
    tokens, lengths = sinkjax.encode(model, ["a b", "c d"], bos="model", length=4)
    run = lambda probe: sinkjax.forward(model.params, tokens, model.config, (), probe, lengths).record  # noqa: E731
    with pytest.raises(SinkjaxError, match=r"nothing to show: .* Probe\(attention=True"):
        run(sinkjax.Probe(nll=True)).show()
    record = run(sinkjax.Probe(resid_max=True))
    with pytest.raises(SinkjaxError, match="prompt 2 is out of range"):
        record.show(prompt=2)
    with pytest.raises(SinkjaxError, match="3 tokens for 4 positions"):
        record.show(tokens=["a", "b", "c"])
    with pytest.raises(SinkjaxError, match="choose fewer layers or tokens"):
        Maps(
            ["a"], [["a"] * 3000], [MapPanel("", "", np.zeros((1, 3000, 3000), np.float32), {}, "query token", "key token")]
        ).html()


@pytest.mark.page
def test_in_a_browser_the_maps_follow_the_choices_and_ask_for_nothing(shown, browser, tmp_path: Path):
    from selenium.webdriver.common.by import By

    file = tmp_path / "saved.html"  # as a saved notebook holds it
    file.write_text(f'<!doctype html><meta charset="utf-8">{shown._repr_html_()}', encoding="utf-8")
    requested(browser)
    browser.get(file.as_uri())
    browser.switch_to.frame(0)

    drawn = "return document.querySelector('.pair canvas').toDataURL()"
    first, before = chosen(browser)["layer"], browser.execute_script(drawn)
    assert first == shown.start["layer"]
    captions = [entry.text for entry in browser.find_elements(By.CSS_SELECTOR, ".pair figcaption")]
    assert captions[:2] == ["no edit", 'with "masked" <i>']
    assert browser.find_elements(By.CSS_SELECTOR, "b, i") == []
    browser.find_element(By.CSS_SELECTOR, 'button[title="previous layer"]').click()
    assert chosen(browser)["layer"] == (first - 1) % 4
    assert browser.execute_script(drawn) != before
    assert browser.execute_script("return document.documentElement.scrollHeight") <= int(
        re.search(r"height: (\d+)px", shown._repr_html_())[1]
    )
    assert complaints(browser) == []
    assert [address for address in requested(browser) if not address.startswith(("file:", "data:", "blob:", "about:"))] == []
