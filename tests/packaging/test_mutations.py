"""The faults that `make mutations` puts into the package: each still fits the code, and its test is one of `make test`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.mutations import ROOT, mutations


def proof() -> set[str]:
    """The files and folders of AS_IS and PROOF in the Makefile."""
    text = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    words = {
        word for line in re.findall(r"^(?:AS_IS|PROOF) +:= (.*)$", text, re.MULTILINE) for word in line.replace(")", "").split()
    }
    return words | {f"tests/study/test_{word}.py" for word in words}


def test_there_are_forty_with_different_names():
    assert len({each.name for each in mutations()}) == len(mutations()) == 40


@pytest.mark.parametrize("mutation", mutations(), ids=lambda mutation: mutation.name)
def test_a_mutation_fits_the_code_and_has_a_test_of_make_test(mutation):
    assert (ROOT / "sinkjax" / mutation.file).read_text().count(mutation.old) == 1
    assert mutation.new != mutation.old
    test = Path(mutation.test)
    assert (ROOT / test).exists()
    assert {str(test), str(test.parent)} & proof()
