"""A page holds all values of its maps, to 8 bits, and no text of a model becomes markup or script."""

from __future__ import annotations

import base64
import json
import re
import zlib

import numpy as np
import pytest

from sinkjax.report.page import page
from sinkjax.viewing import maps
from sinkjax.viewing.maps import MISSING
from tests.viewing.views import EDITS, TOKENS, attention, section, shown


def decoded(panel: dict, shape: tuple[int, ...]) -> np.ndarray:
    """The numbers that a page holds, decoded as `viewer.js` does."""
    codes = np.frombuffer(zlib.decompress(base64.b64decode(panel["data"])), np.uint8).reshape(shape)
    share = codes / (MISSING - 1)
    numbers = panel["low"] * (panel["high"] / panel["low"]) ** share if panel["log"] else panel["high"] * share**2
    return np.where(codes == MISSING, np.nan, numbers)


def test_attention_comes_back_to_a_two_hundred_fiftieth_of_its_root():
    want, packed = attention().values, shown().contents()["panels"][0]
    np.testing.assert_allclose(np.sqrt(decoded(packed, want.shape)), np.sqrt(want), atol=0.5 / 254 + 1e-6)
    assert packed["high"] == pytest.approx(np.nanmax(want))


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize(
    "values", [np.zeros((2, 2)), np.full((2, 2), np.nan), np.full((2, 2), 3.0), np.array([[0, np.nan], [5, 7]])]
)
def test_odd_values_have_codes_and_a_scale_too(values, log):
    codes, low, high = maps.encode(values, log)
    np.testing.assert_array_equal(codes == MISSING, np.isnan(values))
    assert 0 <= low < high < np.inf
    json.dumps([low, high], allow_nan=False)


def test_a_page_that_would_be_too_large_leaves_maps_to_the_studys_own(monkeypatch):
    whole = page([section("one", "two")], "All")
    monkeypatch.setattr("sinkjax.report.page.LARGEST", len(whole.encode()) - 10)
    text = page([section("one", "two")], "All")
    assert len(text.encode()) < len(whole.encode()) - 10
    assert [text.count(f'id="{name}"') for name in ("one", "two")] == [1, 0]
    caption = "A caption with &lt;angle&gt;. .* 0 MB: "
    assert re.search(rf"{caption}.*stores", text)
    assert re.search(rf"{caption}.*paper/views", page([section("one", "two")] * 2, "All"))


def test_no_token_or_label_becomes_markup_or_ends_the_script():
    text = shown().figure()
    (data,) = re.findall(r'<script type="application/json">(.*?)</script>', text, re.DOTALL)
    held = json.loads(data)
    assert held["runs"] == list(EDITS)
    assert held["choices"][1] == {"name": "layer", "labels": ["0", "1", "2"], "start": 1}
    assert held["tokens"] == list(TOKENS)
    assert "<b>" not in text
    assert "A caption with &lt;angle&gt;." in text
