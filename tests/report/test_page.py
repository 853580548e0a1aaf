"""The page holds the numbers, needs nothing from outside, and lets no text of a model become markup."""

from __future__ import annotations

import dataclasses
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure

from sinkjax.analysis.evidence import ContrastRank, Judgement
from sinkjax.analysis.intervals import Interval
from sinkjax.analysis.judgement import not_applicable
from sinkjax.analysis.summary import Rank, Row
from sinkjax.analysis.verdicts import Verdict
from sinkjax.report.markdown import table as markdown
from sinkjax.report.page import MARGIN, WIDTH, page
from sinkjax.report.section import Drawing, Section
from sinkjax.report.table import verdicts
from sinkjax.report.terminal import terminal


def estimate(mean: float | None, spread: float = 0.5) -> Interval:
    if mean is None:
        return Interval(None, None, None, 0, 3, 0.95, "none", "no samples")
    return Interval(mean, mean - spread, mean + spread, 8, 0, 0.95, "BCa")


def row(arm: str, measure: str, mean: float | None, rank: Rank | None = None) -> Row:
    return Row(arm, "group", measure, estimate(mean), estimate(mean, 0.25), rank)


SEVEN = Interval(7.0, 6.0, 8.0, 8, 0, 0.95, "t")


@pytest.fixture
def section() -> Section:
    arms, measures = ("none", "<b>edit</b>", "third"), ("rate (%)", "loss")
    rows = [row(arm, measure, 10 * place + len(measure)) for place, arm in enumerate(arms) for measure in measures]
    rows[2] = row("<b>edit</b>", "rate (%)", 12_345.6, Rank(19, 1, 20))
    drawing = Drawing("picture", Figure(figsize=(2, 1)), "A caption with <angle> & ampersand")
    return Section(
        study="paper/name",
        title="A title",
        question="A claim.",
        findings=("A finding [in brackets].",),
        rows=tuple(rows),
        featured=("none", "<b>edit</b>"),
        drawings=(drawing,),
        notes=("A note.",),
        provenance={"text": "<script>alert(1)</script>"},
        verdicts=(
            Verdict("a", "The <sink> moves.", "Fig. 4", "95%", Judgement("replicates", D=SEVEN), label="effect & more"),
            Verdict("b", "It does not come back.", "", "", Judgement("undecided", reason="4 of 8 prompts")),
            Verdict("c", "The gate is shut.", "", "", Judgement("not applicable", reason="there is no gate")),
        ),
    )


class Tags(HTMLParser):
    """Counts tags and their attributes, and checks that what opens also closes."""

    VOID = frozenset(("meta", "img", "br"))

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict]] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_sound_and_self_contained(section):
    text = page([section, section], "All")
    tags = Tags(text).seen
    sources = [attributes[name] for _, attributes in tags for name in ("src", "href") if name in attributes]
    assert len(sources) == 2
    assert all(source.startswith("data:image/svg+xml;base64,") for source in sources)
    assert not {"script", "link", "iframe"} & {tag for tag, _ in tags}
    assert not re.search(r"url\(|@import", text)


def test_text_never_becomes_markup(section):
    text = page([section], "All")
    assert "<b>" not in text
    assert "<script>" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


def test_the_tables_hold_value_interval_effect_and_percentile(section):
    text = page([section], "All")
    for words in ("12,346 [12,345, 12,346]", "Δ +12,346 [12,345, 12,346]", "percentile 98 (20)"):
        assert words in text
    short, whole = text.split("<details><summary>All 3")
    assert "third" not in short
    assert "third" in whole


def test_claims_stand_with_word_evidence_and_the_papers_number(section):
    text = page([section], "All")
    for words in (
        "<td>The &lt;sink&gt; moves.<small>Fig. 4; 95%</small></td>",
        '<td class="word replicates">replicates</td>',
        '<span class="value">7 [6, 8]</span>',
        "<small>effect &amp; more: 7 [6, 8]</small>",
        '<td class="word undecided">undecided</td>',
        "<small>4 of 8 prompts</small>",
    ):
        assert words in text
    assert re.fullmatch("1 replicates, 1 undecided; .*1 not applicable", verdicts(section))
    assert "<h2>Claims" not in page([dataclasses.replace(section, verdicts=())], "All")


def test_a_page_of_several_studies_has_contents_and_names_those_without_a_section(section):
    text = page([section], "All", {"paper/<other>": "the model has no <gate>"})
    Tags(text)
    assert text.index('<a href="#paper/name">') < text.index('<section id="paper/name">')
    assert verdicts(section) in text
    assert "paper/&lt;other&gt;" in text
    assert "no &lt;gate&gt;" in text
    assert "<nav" not in page([section], "All")


def test_the_terminal_shows_the_answer_the_claims_and_the_findings(section, capsys):
    terminal(section)
    out = capsys.readouterr().out
    for words in ("The <sink> moves (7 [6, 8]).", "A finding [in brackets].", "undecided", "4 of 8"):
        assert words in out
    assert "12,346" not in out


def interval_of(low: float, mean: float, high: float) -> Interval:
    return Interval(mean, low, high, 12, 0, 0.95, "t")


def drawn(section: Section, one: Verdict) -> dict[str, list[ElementTree.Element]]:
    """The parts of a claim's bar by class."""
    svg = re.search(r"<svg.*?</svg>", page([dataclasses.replace(section, verdicts=(one,))], "All"), re.DOTALL)
    found: dict[str, list[ElementTree.Element]] = {}
    for part in ElementTree.fromstring(svg[0]) if svg else ():
        found.setdefault(part.get("class", "title"), []).append(part)
    return found


def x(part: ElementTree.Element, name: str) -> float:
    return float(part.attrib[name])


def test_the_bar_of_a_share_lies_between_nothing_and_the_whole(section):
    spread = ContrastRank(20, 0, 20, (-1.0, 1.0))
    share, whole = interval_of(0.6, 0.8, 1.0), interval_of(9, 10, 11)
    judged = Judgement("replicates", D=interval_of(6, 8, 10), S=share, W=whole, rank=spread)
    twin = Judgement("undecided", D=interval_of(0, 1, 2), S=interval_of(0.1, 0.2, 0.3))
    parts = drawn(section, Verdict("a", "It moves.", "", "", judged, twin))
    zero, (below, above, one) = x(parts["zero"][0], "x1"), (x(mark, "x1") for mark in parts["mark"])
    assert [zero - below, above - zero] == pytest.approx([(one - zero) / 10] * 2, abs=0.2)
    line, mean, ring, (band,) = parts["interval"][0], parts["mean"][0], parts["twin"][0], parts["controls"]
    for part, name, number in ((line, "x1", 0.6), (line, "x2", 1.0), (mean, "cx", 0.8), (ring, "cx", 0.2), (band, "x", -0.1)):
        assert x(part, name) == pytest.approx(zero + number * (one - zero), abs=0.2)
    assert x(band, "width") == pytest.approx(0.2 * (one - zero), abs=0.2)
    assert "80% [60, 100] of the whole" in parts["title"][0].text


def test_the_bar_of_an_effect_has_its_own_scale_and_one_of_a_long_interval_an_arrow(section):
    parts = drawn(section, Verdict("a", "It moves.", "", "", Judgement("replicates", D=interval_of(-4, -2, -1)), unit="nats"))
    assert "mark" not in parts
    assert (x(parts["interval"][0], "x1"), x(parts["zero"][0], "x1")) == (MARGIN, WIDTH - MARGIN)
    judged = Judgement("replicates", D=interval_of(1, 8, 90), S=interval_of(0.1, 0.8, 9.0), W=interval_of(9, 10, 11))
    parts = drawn(section, Verdict("a", "It moves.", "", "", judged))
    assert len(parts["arrow"]) == 1
    assert x(parts["interval"][0], "x2") == WIDTH - MARGIN
    assert drawn(section, Verdict("a", "It moves.", "", "", not_applicable("there is no gate"))) == {}


def test_no_escape_of_a_label_or_title_reaches_the_terminal(section, capsys):
    rows = tuple(dataclasses.replace(entry, condition="\x1b[31mred") for entry in section.rows)
    loud = dataclasses.replace(section, title="\x1b]0;title\a", findings=("\x9b1m",), rows=rows, featured=("\x1b[31mred",))
    said = Verdict("a", "\x1b[2J", "", "", Judgement("replicates", D=SEVEN), label="\x9b")
    terminal(dataclasses.replace(loud, verdicts=(said,)))
    terminal(dataclasses.replace(loud, verdicts=()))
    shown = capsys.readouterr().out
    assert not {*shown} & {*"\x1b\a\x9b"}
    assert "\\x1b[31mred" in shown


def test_bars_and_stars_of_a_markdown_table_do_not_become_markup():
    lines = ["| claim | s |", "| --- | --- |", "| /h/ and Sink_\\* grow. | 1 |"]
    assert markdown(["claim", "s"], [["|h| and Sink_* grow.", "1"]]).splitlines() == lines
