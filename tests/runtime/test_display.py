"""What a notebook shows of a model, an edit, a probe and a record: what was chosen, escaped, and short."""

from xml.etree import ElementTree

import jax
import numpy as np
import pytest

import sinkjax


def rows(shown) -> list[list[str]]:
    """The rows of a table whose elements are all closed."""
    return [[cell.text for cell in row] for row in ElementTree.fromstring(shown._repr_html_()).iter("tr")]


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
