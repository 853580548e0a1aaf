"""Maps of a report in a real browser: no network, no complaint, and they follow the reader's choices."""

from __future__ import annotations

from pathlib import Path

import pytest

from sinkjax.report.page import page
from tests.pages import complaints
from tests.viewing.views import EDITS, chosen, section

pytestmark = pytest.mark.page

ATTENTION, ACTIVATION = range(2)


@pytest.fixture
def opened(browser, tmp_path: Path):
    """The browser, with a page of maps open and drawn."""
    file = tmp_path / "report.html"
    file.write_text(page([section()], "Views"), encoding="utf-8")
    browser.get(file.as_uri())
    chosen(browser)
    return browser


def choose(browser, choice: str, action: str) -> dict:
    """An action on one choice, a click on a button or a selection; returns the choices after it."""
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import Select

    if action in ("next", "previous"):
        browser.find_element(By.CSS_SELECTOR, f'button[title="{action} {choice}"]').click()
    else:
        Select(browser.find_element(By.CSS_SELECTOR, f'select[name="{choice}"]')).select_by_visible_text(action)
    return chosen(browser)


def words(browser, panel: int, row: int, column: int, side: int = 0) -> list[str]:
    """The lines of the tooltip in one cell of a panel's map."""
    script = """
        const [panel, row, column, side] = arguments;
        const canvas = document.querySelectorAll('.pair')[panel].querySelectorAll('canvas')[side];
        canvas.scrollIntoView({block: 'center'});
        const box = canvas.getBoundingClientRect();
        for (let x = box.left + 27; x < box.right; x += 2) for (let y = box.top + 3; y < box.bottom; y += 3) {
          canvas.dispatchEvent(new PointerEvent('pointermove', {clientX: x, clientY: y}));
          const said = document.getElementById('tip').textContent;
          const [up, across] = said.split('\\n');
          if ((up.endsWith(` ${row}`) || up.includes(` ${row} “`)) && across.includes(`token ${column} `)) return said;
        }
        return ''"""
    return browser.execute_script(script, panel, row, column, side).split("\n")


def test_pointing_names_both_tokens_and_the_values_of_both_runs(opened):
    assert choose(opened, "layer", "0")["layer"] == 0
    assert words(opened, ATTENTION, 0, 0) == ["query token 0 “It”", "key token 0 “It”", "no edit 0", "<b>masked</b> 0.335"]
    assert words(opened, ATTENTION, 0, 1) == [""]  # a key that the query cannot see
    assert words(opened, ATTENTION, 4, 4, side=1)[:2] == ["query token 4 “<b>best”", "key token 4 “<b>best”"]
    assert words(opened, ACTIVATION, 0, 5) == ["depth 0", "token 5 “</script>”", "no edit at most 1", "<b>masked</b> at most 1"]


def test_clicks_and_selections_change_the_maps(opened):
    assert chosen(opened) == {"compare": 0, "with": 1, "prompt": 0, "layer": 1, "head": 0}
    assert choose(opened, "layer", "previous")["layer"] == 0
    assert choose(opened, "head", "next")["head"] == 1
    assert words(opened, ATTENTION, 0, 0)[2] == "no edit 0.027"  # map 1 of 36
    assert choose(opened, "compare", EDITS[2]) == {"compare": 2, "with": 1, "prompt": 0, "layer": 0, "head": 1}
    assert words(opened, ATTENTION, 0, 0)[2:] == ["third 0.697", "<b>masked</b> 0.363"]
    assert choose(opened, "prompt", "next")["prompt"] == 1
    assert words(opened, ACTIVATION, 3, 5) == ["depth 3", "token 5 “'q'”", "third 10,000", "<b>masked</b> 45"]
    assert complaints(opened) == []
