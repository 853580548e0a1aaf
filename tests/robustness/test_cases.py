"""Every wrong input gives its one sentence: the ordinary tests try a sample, the battery all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.robustness import broken, cases

EVERY = 10  # case that the sample has


def sampled(kind: str) -> list[Any]:
    """The cases of a kind; those out of the sample are marked."""
    every = enumerate(cases.cases(kind))
    return [
        pytest.param(case, id=case.given[:60], marks=() if number % EVERY == 0 else pytest.mark.battery) for number, case in every
    ]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return broken.write(tmp_path_factory.mktemp("broken"))


@pytest.fixture(scope="module")
def known(home: Path) -> dict[str, Any]:
    return cases.names(home)


def test_there_are_hundreds_of_different_cases():
    for kind in cases.KINDS:
        every = cases.cases(kind)
        assert len({case.given for case in every}) == len(every) >= 300
        assert all(len(case.says) > 10 for case in every)


@pytest.mark.parametrize("case", sampled("cli"))
def test_a_wrong_command_is_one_sentence(case: cases.Case, home: Path):
    assert cases.command(case, home).wrong(case) == ""


@pytest.mark.parametrize("case", sampled("api"))
def test_a_wrong_call_is_one_sentence(case: cases.Case, known: dict[str, Any]):
    assert cases.expression(case, known).wrong(case) == ""
