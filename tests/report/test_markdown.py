"""A section as Markdown: its claims and its short table, and text that stays what it is."""

from __future__ import annotations

import dataclasses

from sinkjax.report.markdown import claims, markdown, summary
from tests.report.test_page import row, section  # noqa: F401


def test_a_section_has_its_question_findings_table_claims_and_notes_in_this_order(section):  # noqa: F811
    text = markdown(section)
    places = [text.index(part) for part in ("## A title", "A claim.", "A finding", "| edit | rate (%) |", "| claim |", "A note.")]
    assert places == sorted(places)
    assert "| The <sink> moves. | Fig. 4 | replicates | effect & more: 7 [6, 8] | 95% |" in text
    assert "third" not in text  # not featured


def test_columns_without_a_number_are_left_out(section):  # noqa: F811
    other = dataclasses.replace(section, rows=(*section.rows, row("none", "empty", None)))
    assert "empty" in summary(other)  # a note is a number's place
    rows = tuple(one for one in section.rows if one.condition != "<b>edit</b>" or one.measure == "loss")
    assert "| <b>edit</b> | - |" in summary(dataclasses.replace(section, rows=rows))


def test_bars_and_stars_do_not_become_markup(section):  # noqa: F811
    one = dataclasses.replace(section.verdicts[0], statement="|h| and Sink_* grow.")
    assert "| /h/ and Sink_\\* grow. |" in claims([one])
    assert claims([]) == ""
