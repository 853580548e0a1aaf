"""The bar of a claim draws its own numbers, to scale."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from sinkjax.analysis.evidence import ContrastRank, Judgement
from sinkjax.analysis.intervals import Interval
from sinkjax.analysis.judgement import not_applicable
from sinkjax.analysis.verdicts import Verdict
from sinkjax.report.bar import MARGIN, WIDTH, bar


def interval(low: float, mean: float, high: float) -> Interval:
    return Interval(mean, low, high, 12, 0, 0.95, "t")


def parts(one: Verdict) -> dict[str, list[ElementTree.Element]]:
    found: dict[str, list[ElementTree.Element]] = {}
    for part in ElementTree.fromstring(bar(one)):
        found.setdefault(part.get("class", "title"), []).append(part)
    return found


def number(part: ElementTree.Element, name: str) -> float:
    return float(part.attrib[name])


def test_a_share_lies_between_nothing_and_the_whole():
    spread = ContrastRank(20, 0, 20, (-1.0, 1.0))
    judged = Judgement("replicates", D=interval(6, 8, 10), S=interval(0.6, 0.8, 1.0), W=interval(9, 10, 11), rank=spread)
    twin = Judgement("undecided", D=interval(0, 1, 2), S=interval(0.1, 0.2, 0.3))
    drawn = parts(Verdict("a", "It moves.", "", "", judged, twin))
    zero, (below, above, whole) = number(drawn["zero"][0], "x1"), (number(mark, "x1") for mark in drawn["mark"])
    assert [zero - below, above - zero] == pytest.approx([(whole - zero) / 10] * 2, abs=0.2)
    line, mean, ring, (band,) = drawn["interval"][0], drawn["mean"][0], drawn["twin"][0], drawn["controls"]
    for part, name, share in ((line, "x1", 0.6), (line, "x2", 1.0), (mean, "cx", 0.8), (ring, "cx", 0.2), (band, "x", -0.1)):
        assert number(part, name) == pytest.approx(zero + share * (whole - zero), abs=0.2)
    assert number(band, "width") == pytest.approx(0.2 * (whole - zero), abs=0.2)
    assert "80% [60, 100] of the whole" in drawn["title"][0].text


def test_an_effect_without_a_whole_has_its_own_scale():
    drawn = parts(Verdict("a", "It moves.", "", "", Judgement("replicates", D=interval(-4, -2, -1)), unit="nats"))
    assert "mark" not in drawn
    assert number(drawn["interval"][0], "x1") == pytest.approx(MARGIN, abs=0.1)
    assert number(drawn["zero"][0], "x1") == pytest.approx(WIDTH - MARGIN, abs=0.1)


def test_an_interval_beyond_the_bar_ends_in_an_arrow():
    judged = Judgement("replicates", D=interval(1, 8, 90), S=interval(0.1, 0.8, 9.0), W=interval(9, 10, 11))
    drawn = parts(Verdict("a", "It moves.", "", "", judged))
    assert len(drawn["arrow"]) == 1
    assert number(drawn["interval"][0], "x2") == pytest.approx(WIDTH - MARGIN, abs=0.1)


def test_nothing_measured_is_nothing_drawn():
    assert bar(Verdict("a", "It moves.", "", "", not_applicable("there is no gate"))) == ""
