"""Reading a page in the `browser` of conftest.py: its requests and complaints, and windows of other widths."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager


def complaints(browser) -> list[str]:
    """The warnings and errors that the console has logged since the last call."""
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] in ("WARNING", "SEVERE")]


def requested(browser) -> list[str]:
    """The addresses that were requested since the last call."""
    sent = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return [entry["params"]["request"]["url"] for entry in sent if entry["method"] == "Network.requestWillBeSent"]


@contextmanager
def window(browser, width: int) -> Iterator[None]:
    """A window of this width in pixels, after the page has been drawn again, until the block ends."""
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        browser.execute_async_script("const done = arguments[0]; setTimeout(done, 600)")
        yield
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def width_of(browser) -> int:
    """The width of the page in pixels, more than its window's if the page does not fit into it."""
    return browser.execute_script("return document.documentElement.scrollWidth")
