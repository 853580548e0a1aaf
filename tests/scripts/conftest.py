"""Scripts as modules: a test module names its own in SCRIPT."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture(scope="module")
def script(request: pytest.FixtureRequest) -> Iterator[dict]:
    """The names of the script that the test module is about."""
    sys.path.insert(0, str(SCRIPTS))
    try:
        yield runpy.run_path(str(SCRIPTS / request.module.SCRIPT))
    finally:
        sys.path.remove(str(SCRIPTS))
