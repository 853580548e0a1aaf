"""Mutated files are read or refused in one sentence: some in the ordinary tests, 3,000 of each parser in make check."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.robustness import fuzz

FEW, MANY, SEED = 300, 3_000, 0


@pytest.mark.parametrize("parser", fuzz.PARSERS)
def test_the_seeds_are_sound(parser: str, tmp_path: Path):
    path = tmp_path / fuzz.PARSERS[parser].file
    for data in fuzz.PARSERS[parser].seeds():
        path.write_bytes(data)
        assert fuzz.attempt(fuzz.PARSERS[parser], path)[0] == fuzz.READ


@pytest.mark.parametrize("parser", fuzz.PARSERS)
def test_a_mutation_depends_on_its_number_alone(parser: str):
    one, seeds = fuzz.PARSERS[parser], fuzz.PARSERS[parser].seeds()
    made = [fuzz.mutation(SEED, parser, number, seeds) for number in range(20)]
    assert made == [fuzz.mutation(SEED, parser, number, one.seeds()) for number in range(20)]
    assert len(set(made)) > 15


@pytest.mark.parametrize(
    ("parser", "count"),
    [(name, FEW) for name in fuzz.PARSERS] + [pytest.param(name, MANY, marks=pytest.mark.fuzz) for name in fuzz.PARSERS],
)
def test_a_mutated_file_is_read_or_refused_in_one_sentence(parser: str, count: int):
    found = fuzz.fuzz(parser, SEED, range(count))
    print(f"{parser}: seed {SEED}, {dict(found.outcomes)}")
    assert found.wrong == []
    assert found.outcomes[fuzz.REFUSED] > count / 10
    assert found.outcomes[fuzz.READ] > 0
