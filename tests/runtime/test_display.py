"""What a notebook shows of a model, an edit, a probe and a record: what was chosen, escaped, and short."""

import html.parser

import jax
import numpy as np
import pytest

import sinkjax


class Cells(html.parser.HTMLParser):
    """The rows of a table; an element that is not closed is an error."""

    def __init__(self, text: str):
        super().__init__()
        self.open, self.rows = [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        assert tag in {"div", "strong", "table", "tr", "td", "th"}
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in {"td", "th"}:
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1] in {"td", "th"}:
            self.rows[-1][-1] += data


def rows(shown) -> list[list[str]]:
    return Cells(shown._repr_html_()).rows


@pytest.fixture(scope="module")
def model():
    return sinkjax.load("mini-softmax")


def test_a_record_shows_axes_and_no_numbers(model):
    tokens = np.arange(24).reshape(2, 12)
    record = sinkjax.forward(model.params, tokens, model.config, probe=sinkjax.Probe(attention_received=True, nll=True)).record
    assert rows(record)[1:] == [
        ["attention_received", "float32 [prompt 2, layer 4, head 2, key 12]"],
        ["nll", "float32 [prompt 2, position 12]"],
        ["non_finite", "int32 [prompt 2, depth 5]"],
    ]
    assert repr(record) == (
        "Record(attention_received: float32 [prompt 2, layer 4, head 2, key 12], nll: float32 [prompt 2, position 12],"
        " non_finite: int32 [prompt 2, depth 5])"
    )
    nothing = "Record(attention_received: NoneType, nll: NoneType, non_finite: NoneType)"
    assert repr(jax.tree.map(lambda _: None, record)) == nothing
    several = jax.tree.map(lambda x: x[None], record)
    assert rows(several)[2] == ["nll", "float32 [edit 1, prompt 2, position 12]"]
