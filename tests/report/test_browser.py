"""The page in a real browser: it opens without a network and without a complaint, and its maps follow the reader's choices."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sinkjax.report.page import page
from tests.report.views import EDITS, section

pytestmark = pytest.mark.page

PLOT = "document.querySelector('#{} .map')"


@pytest.fixture
def opened(browser, tmp_path: Path):
    """The browser, with a page of two views open and both drawn."""
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    file = tmp_path / "report.html"
    file.write_text(page([section()], "Views"), encoding="utf-8")
    browser.get(file.as_uri())
    WebDriverWait(browser, 60).until(
        lambda driver: len(driver.find_elements(By.CSS_SELECTOR, 'figure.view[data-ready="yes"] .heatmaplayer image')) == 2
    )
    return browser


def words(browser, view: str) -> list[str]:
    """What hovering shows, cell by cell."""
    return browser.execute_script(f"return {PLOT.format(view)}.data[0].text.flat()")


def choose(browser, view: str, choice: str, action: str) -> list[str]:
    """The hover texts after an action on one choice: a click on a button, or a selection."""
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import Select, WebDriverWait

    before = words(browser, view)
    figure = browser.find_element(By.ID, view)
    if action in ("next", "previous"):
        figure.find_element(By.CSS_SELECTOR, f'button[title="{action} {choice}"]').click()
    else:
        Select(figure.find_element(By.CSS_SELECTOR, f'select[name="{choice}"]')).select_by_visible_text(action)
    WebDriverWait(browser, 30).until(lambda driver: words(driver, view) != before)
    return words(browser, view)


def test_it_opens_without_a_complaint_and_asks_for_nothing_else(opened):
    assert [entry for entry in opened.get_log("browser") if entry["level"] in ("WARNING", "SEVERE")] == []
    sent = [json.loads(entry["message"])["message"] for entry in opened.get_log("performance")]
    addresses = [entry["params"]["request"]["url"] for entry in sent if entry["method"] == "Network.requestWillBeSent"]
    assert [address for address in addresses if not address.startswith(("data:", "blob:"))] == [opened.current_url]


def test_hovering_names_both_tokens_and_the_value(opened):
    shown = words(opened, "attention")
    assert shown[0] == "query 0 “It”<br>key 0 “It”<br>attention: 0"
    assert shown[1] == ""  # a key that the query cannot see
    assert shown[6 * 3 + 1] == "query 3 “↵”<br>key 1 “was”<br>attention: 0.022"
    assert "“&lt;b&gt;best”" in shown[6 * 4 + 4]


def test_a_point_of_the_map_answers_the_mouse(opened):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    plot = opened.find_element(By.CSS_SELECTOR, "#activation .nsewdrag")
    opened.execute_script("arguments[0].scrollIntoView({block: 'center'})", plot)
    ActionChains(opened).move_to_element(plot).perform()
    hover = WebDriverWait(opened, 30).until(
        lambda driver: driver.find_elements(By.CSS_SELECTOR, "#activation .hoverlayer .hovertext")
    )
    assert "largest |h|" in hover[0].text


def test_a_click_and_a_selection_change_the_map(opened):
    first = words(opened, "attention")
    following = choose(opened, "attention", "layer", "next")
    assert following[0].endswith("attention: 0.083")  # map 2 of 24, the first of its 36 cells
    assert choose(opened, "attention", "layer", "previous") == first
    assert choose(opened, "attention", "edit", EDITS[1])[0].endswith("attention: 0.502")
    assert choose(opened, "attention", "prompt", "1")[0].startswith("query 0 “She”")
    assert choose(opened, "activation", "prompt", "next")[-1] == "depth 3<br>position 5 “&#39;q&#39;”<br>largest |h|: 10,000"
    assert [entry for entry in opened.get_log("browser") if entry["level"] in ("WARNING", "SEVERE")] == []


def test_text_of_a_model_is_shown_and_never_run(opened):
    shown = opened.execute_script("return document.querySelector('#attention .xaxislayer-above').textContent")
    assert "<b>best" in shown
    assert "</script>" in shown


def test_the_maps_can_be_photographed(opened, tmp_path):
    assert opened.save_screenshot(str(tmp_path / "page.png"))
    assert (tmp_path / "page.png").stat().st_size > 10_000
