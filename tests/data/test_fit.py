"""What a text of the user's gives: all of its passages if they are of a size, and what is asked for unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest

from sinkjax.data.corpora import passages
from sinkjax.data.fit import fitted
from sinkjax.errors import SinkjaxError


def words(text: str) -> int:
    return len(text.split())


def written(path: Path, *sizes: int) -> Path:
    """A text with passages of these numbers of words."""
    path.write_text("\n".join(f"p{number} " + "x " * (size - 1) for number, size in enumerate(sizes)))
    return path


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((70,) * 9, (8, 64)),  # enough: nothing changes
        ((20, 30, 40), (3, 20)),  # all of them, cut to the shortest
        ((20, 30, 5), (2, 20)),  # but not to one that shows nothing
        ((60,) * 7 + (12,), (7, 60)),  # and a single short one does not cut seven
        ((30,) * 20 + (64,), (8, 30)),  # prompts count more than tokens
    ],
)
def test_number_and_length_are_those_of_the_text(tmp_path, sizes, expected):
    path = written(tmp_path / "own.txt", *sizes)
    number, length, said = fitted(path, 8, 64, size=words)
    assert (number, length) == expected
    assert bool(said) == (expected != (8, 64))
    assert len(passages(path, number, length=length, size=words).texts) == number


def test_what_is_asked_for_does_not_change(tmp_path):
    path = written(tmp_path / "own.txt", 20, 30, 40, 8)
    assert fitted(path, 2, 64, given={"prompts"}, size=words)[:2] == (2, 30)
    assert fitted(path, 8, 25, given={"length"}, size=words)[:2] == (2, 25)
    assert fitted(path, 8, 8, given={"length"}, size=words)[:2] == (4, 8)
    assert fitted(path, 8, 64, given={"prompts", "length"}, size=words) == (8, 64, "")
    with pytest.raises(SinkjaxError, match=r"4 prompts .* only 3 .* --prompts 3"):
        fitted(path, 4, 64, given={"prompts"}, size=words)
    with pytest.raises(SinkjaxError, match=r"50 tokens.* --length 40"):
        fitted(path, 8, 50, given={"length"}, size=words)
