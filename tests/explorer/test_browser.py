"""The page in a real Chromium, with real clicks: every edit changes what is drawn as forward says, and no prompt is run."""

from __future__ import annotations

import numpy as np
import pytest

import sinkjax
from sinkjax.explorer.compute import Workbench
from sinkjax.explorer.state import KINDS, State, edits_of, read_state
from tests.explorer.serving import serving
from tests.pages import complaints

pytestmark = pytest.mark.page

TEXT = "They sent for Ness at half past two."
SCRIPT = "<script>document.title='run'</script> <img src=x onerror=document.title=1> & more"


@pytest.fixture(scope="module")
def bench() -> Workbench:
    return Workbench(sinkjax.load("mini-softmax"))


@pytest.fixture(scope="module")
def opened(browser, bench, tmp_path_factory):
    """The browser with the page open, loaded once for all tests."""
    with serving(bench, tmp_path_factory.mktemp("kept"), TEXT) as explorer:
        browser.set_window_size(1300, 1100)
        browser.get(explorer.address)
        settled(browser)
        yield browser
        browser.get("about:blank")


def settled(browser) -> State:
    """What is on screen, when all that was asked for is drawn."""
    from selenium.webdriver.support.ui import WebDriverWait

    script = (
        "return document.body.dataset.shown && !document.body.classList.contains('busy')"
        " && location.hash.length > 1 ? decodeURIComponent(location.hash.slice(1)) : null"
    )
    return read_state(WebDriverWait(browser, 180).until(lambda driver: driver.execute_script(script)))


def click(browser, selector: str) -> State:
    from selenium.webdriver.common.by import By

    target = browser.find_element(By.CSS_SELECTOR, selector)
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", target)
    target.click()
    return settled(browser)


def pixels(browser, section: str, side: str) -> str:
    """A map as the browser drew it."""
    return browser.execute_script(f"return document.querySelector('#{section} figure.{side} canvas').toDataURL()")


def weights(browser, bench, state: State) -> np.ndarray:
    """What the tooltip says of every key of the last query, after the edit: the numbers that are on screen."""
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By

    canvas = browser.find_element(By.CSS_SELECTOR, "#attention figure.after canvas")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", canvas)
    n = len(bench.prompt(state.prompt, state.bos).texts)
    box = browser.execute_script("const box = arguments[0].getBoundingClientRect(); return [box.width, box.height]", canvas)
    cell = 28  # pixels, the largest that a map has
    shown = []
    for key in (0, 1, n - 2):
        x, y = box[0] - 4 - (n - key - 0.5) * cell, 2 + (n - 0.5) * cell
        ActionChains(browser).move_to_element_with_offset(canvas, x - box[0] / 2, y - box[1] / 2).perform()
        said = browser.find_element(By.ID, "tip").text
        assert f"key {key} “" in said
        shown.append(float(said.split("after ")[1]))
    return np.array(shown)


@pytest.mark.parametrize("kind", KINDS)
def test_each_edit_changes_the_maps_as_forward_says(opened, bench, kind):
    click(opened, '[data-kind="none"]')
    click(opened, "#tokens button:nth-child(1)")  # a token without an edit means its mask
    state = click(opened, f'[data-kind="{kind}"]')
    if kind == "attend_self":
        state = click(opened, "#tokens button:nth-child(10)")  # BOS sees only itself anyhow
    assert (state.kind, state.layers, state.heads) == (kind, None, None)
    for section in ("attention", "received", "activation"):
        assert pixels(opened, section, "after") != pixels(opened, section, "before")
    model = bench.model
    tokens, lengths = sinkjax.encode(model, [TEXT], bos="model", length=32)
    probe = sinkjax.Probe(attention=(state.layer,))
    out = sinkjax.forward(model.params, tokens, model.config, edits=edits_of(state), probe=probe, lengths=lengths)
    n = int(lengths[0])
    expected = np.asarray(out.record["attention"])[0, 0, :, n - 1, [0, 1, n - 2]].mean(axis=1)
    np.testing.assert_allclose(weights(opened, bench, state), expected, atol=6e-4)  # the tooltip has three digits


def test_a_prompt_of_html_is_text(opened):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    title = opened.title
    box = opened.find_element(By.ID, "prompt")
    box.clear()
    box.send_keys(SCRIPT)
    WebDriverWait(opened, 120).until(lambda driver: settled(driver).prompt == SCRIPT)
    assert opened.title == title
    assert (
        opened.execute_script("return document.querySelectorAll('main script, main img, #controls script, #controls img').length")
        == 0
    )
    shown = opened.execute_script(
        "return [...document.querySelectorAll('#tokens button')].map((button) => button.textContent).join('')"
    )
    assert shown.replace("<|bos|>", "").count("<") == 3
    assert SCRIPT.replace('"', '\\"') in opened.execute_script("return document.getElementById('python').textContent")
    assert [entry for entry in complaints(opened) if " 400 " not in entry] == []
