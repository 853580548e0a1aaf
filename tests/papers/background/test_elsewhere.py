"""background/elsewhere: tokens in the text and tokens that are put at one position."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import xarray

from sinkjax.papers.background import elsewhere as own
from sinkjax.study import Sweep

T = 20


def planted() -> xarray.Dataset:
    """The unedited run of three prompts: "." at 5 is large and a sink, "!" at 4 is large, and the last prompt has neither."""
    largest, received = np.ones((3, 3, T)), np.zeros((3, 2, 4, T))
    largest[:, 1:, 0], largest[0, 2, 5], largest[1, 2, 4] = 100, 10, 1000
    received[:, :, :, 0], received[0, 1, :2, 5] = 0.9, 0.5
    tokens = [["x"] * T for _ in range(3)]
    tokens[0][5] = tokens[0][9] = tokens[2][0] = tokens[2][T - 1] = "."  # the first and the last of all do not count
    tokens[0][9] = " ."
    tokens[1][4] = "!"
    arrays = {
        "resid_max": (("edit", "prompt", "depth", "position"), largest[None]),
        "attention_received": (("edit", "prompt", "layer", "head", "key"), received[None]),
    }
    return xarray.Dataset(arrays, {"length": ("prompt", [T] * 3)}, {"study": {"token_texts": tokens}})


def test_the_first_of_some_tokens_is_compared_with_a_typical_position_and_with_the_first():
    read = SimpleNamespace(data={"text": planted()}.__getitem__)
    activation, sink = (own.at_first_of((".", "!"), of, Sweep("text", {}), 0.3)(read) for of in ("activation", "sink"))
    np.testing.assert_allclose(activation.contrast, [np.log(10), np.log(1000), np.nan])
    np.testing.assert_allclose(activation.whole, np.log(100))
    np.testing.assert_allclose(sink.contrast, [25, 0, np.nan])
    np.testing.assert_allclose(sink.whole, 100)
