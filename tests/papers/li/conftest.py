"""The model of the tests of li."""

from __future__ import annotations

import pytest

import sinkjax
from tests.study.tiny import write_both


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory):
    return sinkjax.load(str(write_both(tmp_path_factory.mktemp("tiny")) / "model"))
