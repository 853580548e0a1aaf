"""The page in a real Chromium, with real clicks: every edit changes what is drawn as forward says, and no prompt is run."""

from __future__ import annotations

import json

import numpy as np
import pytest

import sinkjax
from sinkjax.explorer.compute import Workbench
from sinkjax.explorer.state import KINDS, State, edits_of, read_state
from tests.explorer.serving import serving
from tests.pages import complaints, requested, width_of, window

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


def keys(browser, selector: str, *sent: str) -> State:
    from selenium.webdriver.common.by import By

    browser.find_element(By.CSS_SELECTOR, selector).send_keys(*sent)
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


def test_it_opens_and_asks_this_server_alone(opened):
    assert complaints(opened) == []
    addresses = requested(opened)
    start = opened.current_url.split("#")[0]
    assert addresses
    assert [address for address in addresses if not address.startswith((start, "data:"))] == []


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


def test_the_sliders_and_ticks_are_what_the_edit_acts_on(opened):
    from selenium.webdriver.common.keys import Keys

    click(opened, '[data-kind="add_logit"]')
    drawn = pixels(opened, "received", "after")
    assert keys(opened, "#value", Keys.ARROW_RIGHT, Keys.ARROW_RIGHT).value == -7.0
    assert pixels(opened, "received", "after") != drawn
    assert keys(opened, "#first", Keys.ARROW_RIGHT).layers == (1, 3)
    assert keys(opened, "#last", Keys.ARROW_LEFT).layers == (1, 2)
    assert keys(opened, "#first", Keys.HOME).layers == (0, 2)
    assert click(opened, '#heads input[value="0"]').heads == (1,)
    assert click(opened, "#all-heads").heads is None
    click(opened, "#no-heads")
    assert "tick at least one" in opened.find_element("id", "status").text
    assert click(opened, "#all-heads").heads is None
    assert keys(opened, "#layer", Keys.ARROW_RIGHT).layer == 3
    assert "add_logit(key=0, value=-7.0, layers=slice(0, 3))" in opened.execute_script(
        "return document.getElementById('python').textContent"
    )
    assert "layers: 0:3" in opened.execute_script("return document.getElementById('yaml').textContent")


def test_the_difference_takes_the_place_of_the_second_map(opened):
    click(opened, '[data-kind="none"]')
    click(opened, '[data-kind="mask_key"]')
    drawn = {section: pixels(opened, section, "after") for section in ("attention", "received", "activation")}
    captions = "return [...document.querySelectorAll('figure.after figcaption')].map((one) => one.textContent).slice(0, 3)"
    click(opened, "#difference")
    assert all(pixels(opened, section, "after") != before for section, before in drawn.items())
    assert opened.execute_script(captions) == ["after − before"] * 2 + ["after ÷ before"]
    scales = "return [...document.querySelectorAll('canvas[aria-label^=colour]')].map((one) => one.getAttribute('aria-label'))"
    assert [", before, from" in name or "after" in name for name in opened.execute_script(scales)] == [True] * 6
    click(opened, '[data-kind="add_logit"]')
    opened.execute_script(
        "const box = document.getElementById('value-number'); box.value = 0; box.dispatchEvent(new Event('input'))"
    )
    assert settled(opened).value == 0
    assert "no cell changed: all" in opened.find_element("id", "status").text
    assert [text.split(":")[1] for text in opened.execute_script(captions)] == [" no difference"] * 3
    click(opened, "#difference")
    assert opened.execute_script(captions) == ["after"] * 3
    assert [" before" in name or "after" in name for name in opened.execute_script(scales)] == [False] * 3


def test_it_writes_on(opened, bench):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    state = click(opened, "#continue")
    WebDriverWait(opened, 120).until(lambda driver: len(driver.find_elements(By.CSS_SELECTOR, "#continued p")) == 2)
    shown = [entry.get_attribute("textContent") for entry in opened.find_elements(By.CSS_SELECTOR, "#continued p")]
    written = bench.continued(state)
    assert shown == [f"… {written[side].strip()}" for side in ("before", "after")]


def test_weights_are_scaled_by_row_and_column(opened, bench):
    from selenium.webdriver.common.by import By

    state = click(opened, '[data-kind="edit_weights"]')
    assert (state.matrix, state.row) == ("down", None)
    opened.find_element(By.ID, "row").send_keys("5")
    assert settled(opened).row == 5
    count = 4 if state.layers is None else state.layers[1] - state.layers[0] + 1  # an entry in each layer
    assert f"{count} of {count} cells changed" in opened.find_element(By.ID, "status").text
    python = opened.execute_script("return document.getElementById('python').textContent")
    assert "edit_weights(name='down', op='scale', value=0" in python
    assert f"rows=5, cols={state.col})" in python


def test_components_are_listed_until_the_prompt_or_the_key_changes(opened, bench):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import Select, WebDriverWait

    state = click(opened, "#explain")
    WebDriverWait(opened, 180).until(lambda driver: len(driver.find_elements(By.CSS_SELECTOR, "#effects figure")) == 2)
    shown = [entry.text for entry in opened.find_elements(By.CSS_SELECTOR, "#effects figure.before .word")]
    assert shown == bench.explained(state)["components"]
    click(opened, '[data-kind="drop_mlp"]')
    assert len(opened.find_elements(By.CSS_SELECTOR, "#effects .word")) == 2 * len(shown)
    Select(opened.find_element(By.ID, "key")).select_by_value("2")
    assert settled(opened).key == 2
    assert opened.find_elements(By.CSS_SELECTOR, "#effects .word") == []
    Select(opened.find_element(By.ID, "key")).select_by_value("0")
    assert settled(opened).key == 0


def test_a_link_is_what_was_on_screen(opened):
    state = click(opened, '[data-kind="none"]')  # another worker may have run the tests above
    assert click(opened, '[data-kind="drop_mlp"]') != state
    opened.execute_script(
        "location.hash = arguments[0]", f"#{json.dumps({'prompt': TEXT, 'bos': 'none', 'kind': 'mask_key', 'layers': [0, 1]})}"
    )
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(opened, 60).until(lambda driver: settled(driver).layers == (0, 1))
    assert (settled(opened).bos, settled(opened).kind) == ("none", "mask_key")
    assert opened.execute_script("return document.getElementById('bos').value") == "none"


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


def test_save_says_how_the_store_is_read(opened):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    click(opened, "#save")
    WebDriverWait(opened, 120).until(lambda driver: driver.find_element(By.ID, "saved").text.startswith("Saved."))
    assert "sinkjax report " in opened.find_element(By.ID, "saved").text


@pytest.mark.parametrize("width", [1300, 400])
def test_it_fits_into_the_window(opened, width):
    with window(opened, width):
        assert width_of(opened) <= width
