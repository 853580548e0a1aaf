"""A page holds all values of its maps, to 8 bits, and no text of a model becomes markup or script."""

from __future__ import annotations

import base64
import json
import re
import zlib

import numpy as np
import pytest

from sinkjax.errors import SinkjaxError
from sinkjax.report.page import page
from sinkjax.report.section import Section
from sinkjax.viewing import maps
from sinkjax.viewing.maps import MISSING, MapPanel, Maps
from tests.viewing.views import EDITS, TOKENS, activations, attention, section, shown


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


def test_activations_come_back_to_two_per_cent_over_four_decades():
    values, packed = activations().values, shown().contents()["panels"][1]
    want = np.maximum(values, values.max() / maps.DECADES)
    np.testing.assert_allclose(decoded(packed, want.shape), want, rtol=0.02)


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize(
    "values", [np.zeros((2, 2)), np.full((2, 2), np.nan), np.full((2, 2), 3.0), np.array([[0, np.nan], [5, 7]])]
)
def test_odd_values_have_codes_and_a_scale_too(values, log):
    codes, low, high = maps.encode(values, log)
    np.testing.assert_array_equal(codes == MISSING, np.isnan(values))
    assert 0 <= low < high < np.inf
    json.dumps([low, high], allow_nan=False)


def test_a_page_carries_the_script_only_if_it_has_maps():
    text = page([section(), section()], "All")
    assert text.count("export function watch") == 1
    assert text.count('<figure class="maps"') == 2
    assert "default-src 'none'" in text
    assert len(text) < 60_000
    assert "<script" not in page([Section("paper/none", "None", "", (), (), (), ())], "None")


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


def test_values_must_fit_their_runs_and_choices():
    with pytest.raises(SinkjaxError, match=r"Attention .*\(2, 3, 2, 2\), .*\(1, 3\)"):
        Maps(["a"], [[]], [MapPanel("Attention", "", np.zeros((2, 3, 2, 2)), {"layer": "012"}, "query token", "key token")])


def test_the_strongest_layer_is_the_one_whose_sink_gets_most():
    weights = np.full((3, 2, 4, 4), 0.1)
    weights[1, :, :, 2] = 0.9
    weights[2, 0] = np.eye(4)  # every query sees itself only: a weight of 1, but no sink
    assert maps.strongest(np.where(np.tri(4, dtype=bool), weights, np.nan)) == 1
