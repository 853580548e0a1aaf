"""Tables in Markdown, whose text stays what it is."""

from __future__ import annotations

from sinkjax.report.markdown import table


def test_bars_and_stars_do_not_become_markup():
    assert table(["claim", "s"], [["|h| and Sink_* grow.", "1"]]) == (
        "| claim | s |\n| --- | --- |\n| /h/ and Sink_\\* grow. | 1 |"
    )
