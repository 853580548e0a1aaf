"""What a no-op edit changed, from values that make the answer obvious."""

from __future__ import annotations

import re

import numpy as np
import xarray

from sinkjax.study.results import changes, noop_finding


def test_changes_are_parts_of_the_largest_value_and_an_undefined_number_is_no_match():
    values = np.array([[[1.0, -4.0, np.nan], [2.0, 0.0, np.nan]], [[1.0, -3.0, np.nan], [2.0, np.nan, np.nan]]])
    data = xarray.Dataset(
        {
            "one": (("edit", "prompt", "position"), values),
            "zeros": (("edit", "prompt"), np.zeros((2, 2))),
            "cells_addressed": (("edit", "prompt"), np.array([[0.0, 0.0], [3.0, 4.0]])),
            "length": (("prompt",), np.array([2, 2])),
        },
        {"edit": ["no edit", "identity (times 1)"]},
    )
    found = changes(data)
    assert found.keys() == {"one", "zeros"}
    np.testing.assert_array_equal(found["one"], [[0.25, np.inf]])
    np.testing.assert_array_equal(found["zeros"], [[0, 0]])
    first = data.isel(prompt=[0])
    said = noop_finding(first)
    assert re.search(r"identity .*\(times 1\), 3 cells, .* 2\.5e-01 .*\(one\), .* 1 prompts", said)
    said = noop_finding(data[["zeros", "cells_addressed"]])
    assert re.search(r"identity .*\(times 1\), 7 cells, .*zeros .*bit for bit .* 2 prompts", said)
