"""Total memory and FLOPs of a study's sweeps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sinkjax.studies.plan import RUNTIME, VOCABULARY_ENTRY, process_bytes


def sweep(call: int, parameters: int = 1000) -> Any:
    return SimpleNamespace(bytes={"parameters": parameters, "one call": call}, peak_bytes=parameters + call)


@pytest.mark.parametrize(
    ("plans", "expected"),
    [
        ([(False, 5), (False, 7)], 1 * 1000 + 7),
        ([(False, 5), (True, 3)], 2 * 1000 + 3),
        ([(False, 5000), (True, 3)], 1 * 1000 + 5000),  # the widest call comes before the twin
        ([(True, 3), (False, 5)], 2 * 1000 + 5),  # the twin stays
    ],
)
def test_the_twin_counts_from_its_first_sweep_on(plans, expected):
    made = [(twin, sweep(call)) for twin, call in plans]
    models = 2 if expected >= 2000 and expected < 5000 else 1
    found = process_bytes(made, SimpleNamespace(vocab_size=10))
    assert found == RUNTIME + expected + models * 10 * VOCABULARY_ENTRY
    assert process_bytes(made, SimpleNamespace(vocab_size=None)) == RUNTIME + expected
