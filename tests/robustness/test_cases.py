"""Every wrong command and call of the two tables is refused in its sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.robustness import broken, cases


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return broken.write(tmp_path_factory.mktemp("broken"))


@pytest.fixture(scope="module")
def known(home: Path) -> dict[str, Any]:
    return cases.names(home)


@pytest.mark.parametrize("case", cases.cases("cli"), ids=lambda case: case.given[:60])
def test_a_wrong_command_is_refused(case: cases.Case, home: Path):
    assert cases.command(case, home).wrong(case) == ""


@pytest.mark.parametrize("case", cases.cases("api"), ids=lambda case: case.given[:60])
def test_a_wrong_call_is_refused(case: cases.Case, known: dict[str, Any]):
    assert cases.expression(case, known).wrong(case) == ""
