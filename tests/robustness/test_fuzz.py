"""Mutated files are read or refused in one sentence: some in the ordinary tests, 3,000 of each parser in make check."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.robustness import fuzz


@pytest.mark.parametrize(
    ("parser", "count"),
    [(name, 300) for name in fuzz.PARSERS] + [pytest.param(name, 3_000, marks=pytest.mark.fuzz) for name in fuzz.PARSERS],
)
def test_a_mutated_file_is_read_or_refused_in_one_sentence(parser: str, count: int, tmp_path: Path):
    path = tmp_path / fuzz.PARSERS[parser].file
    for data in fuzz.PARSERS[parser].seeds():
        path.write_bytes(data)
        assert fuzz.attempt(fuzz.PARSERS[parser], path)[0] == fuzz.READ
    found = fuzz.fuzz(parser, 0, range(count))
    assert found.wrong == []
    assert found.outcomes[fuzz.REFUSED] > count / 10
    assert found.outcomes[fuzz.READ] > 0
