"""What a view writes into a page is all of its values, to 8 bits, and no text of a model becomes markup or script."""

from __future__ import annotations

import base64
import json
import re
import sys
import zlib

import numpy as np
import pytest

from sinkjax import maps
from sinkjax.errors import SinkjaxError
from sinkjax.report import viewer
from sinkjax.report.page import page
from sinkjax.report.section import View
from tests.report.views import EDITS, TOKENS, activations, attention, section


def decoded(view: View) -> np.ndarray:
    """The numbers that a page holds, decoded as `viewer.js` does."""
    held = viewer.contents(view)
    codes = np.frombuffer(zlib.decompress(base64.b64decode(held["data"])), np.uint8)
    codes = codes.reshape(*(len(choice["labels"]) for choice in held["choices"]), held["rows"], held["columns"])
    scale, share = held["scale"], codes / (maps.MISSING - 1)
    numbers = scale["low"] * (scale["high"] / scale["low"]) ** share if scale["log"] else scale["high"] * share**2
    return np.where(codes == maps.MISSING, np.nan, numbers)


def test_attention_comes_back_to_a_two_hundred_fiftieth_of_its_root():
    view = attention()
    np.testing.assert_allclose(np.sqrt(decoded(view)), np.sqrt(view.values), atol=0.5 / 254 + 1e-6)
    assert viewer.contents(view)["scale"]["high"] == pytest.approx(np.nanmax(view.values))


def test_activations_come_back_to_two_per_cent_over_four_decades():
    view = activations()
    want = np.maximum(view.values, view.values.max() / maps.DECADES)
    np.testing.assert_allclose(decoded(view), want, rtol=0.02)


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize(
    "values", [np.zeros((2, 2)), np.full((2, 2), np.nan), np.full((2, 2), 3.0), np.array([[0, np.nan], [5, 7]])]
)
def test_odd_values_have_codes_and_a_scale_too(values, log):
    codes, scale = maps.encode(values, log)
    np.testing.assert_array_equal(codes == maps.MISSING, np.isnan(values))
    assert np.isfinite([scale["low"], scale["high"]]).all()
    assert all(-0.01 <= place <= 254.01 for place, _ in scale["ticks"])
    json.dumps(scale, allow_nan=False)


def test_ticks_stand_where_their_values_are():
    for view in (attention(), activations()):
        scale, log = viewer.contents(view)["scale"], view.log
        for place, words in scale["ticks"]:
            share = place / 254
            here = scale["low"] * (scale["high"] / scale["low"]) ** share if log else scale["high"] * share**2
            assert float(words.replace(",", "")) == pytest.approx(here, rel=0.01, abs=1e-3)


def test_a_page_carries_the_script_only_where_it_has_views():
    text = page([section(), section()], "All")
    assert text.count("plotly.js v") == 1
    assert text.count('<figure class="view"') == 4
    assert "default-src 'none'" in text
    assert len(text) < 6_000_000


def test_a_page_that_would_be_too_large_leaves_maps_to_the_studys_own(monkeypatch):
    whole = page([section(), section()], "All")
    monkeypatch.setattr("sinkjax.report.page.LARGEST", len(whole.encode()) - 10)
    text = page([section(), section()], "All")
    assert len(text.encode()) < len(whole.encode()) - 10
    assert [text.count(f'id="{name}"') for name in ("attention", "activation")] == [2, 1]
    assert "By depth. This map is on the page of paper/views alone." in text


def test_no_token_or_label_becomes_markup_or_ends_the_script():
    text = viewer.figure(attention())
    (data,) = re.findall(r'<script type="application/json">(.*?)</script>', text, re.DOTALL)
    held = json.loads(data)
    assert held["choices"][0] == {"name": "edit", "labels": list(EDITS), "start": 0}
    assert held["tokens"] == list(TOKENS)
    assert "<b>" not in text
    assert "A caption with &lt;angle&gt;." in text


def test_values_must_fit_their_choices():
    with pytest.raises(SinkjaxError, match=r"the view v has values of shape \(3, 2, 2\), but choices of \(2,\)"):
        View("v", "", "", np.zeros((3, 2, 2)), {"edit": ["a", "b"]}, [[]], "query", "key")


def test_a_missing_plotly_says_what_to_install(monkeypatch):
    viewer._plotly.cache_clear()
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(SinkjaxError, match=r"pip install 'sinkjax\[report\]'"):
        viewer.script()
    viewer._plotly.cache_clear()
