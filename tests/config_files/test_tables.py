"""CSV files: what a spreadsheet would run is quoted, and is read as it was."""

from __future__ import annotations

import csv
import io

import hypothesis
import pytest
from hypothesis import strategies

from sinkjax.analysis.intervals import Interval
from sinkjax.analysis.summary import NOT_COMPARED, Row, summary_csv
from sinkjax.config_files.tables import csv_rows, csv_text

VALUE = Interval(-0.5, None, None, 1, 0, 0.95, "none")


@pytest.mark.parametrize("label", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "'=1", "''-a"])
def test_a_label_that_a_spreadsheet_would_run_is_quoted_and_read_as_it_was(label):
    text = summary_csv([Row(label, "all", "nll", VALUE, NOT_COMPARED)])
    _, row = csv.reader(io.StringIO(text, newline=""))
    assert row[0] == f"'{label}"
    assert row[3] == "-0.5"
    assert csv_rows(text)[1][0] == label


@hypothesis.given(strategies.text(alphabet="'=+-@\t\r\n,\" a1.[]"))
def test_every_text_is_read_as_it_was(label):
    assert csv_rows(csv_text([[label, "end"]])) == [[label, "end"]]
