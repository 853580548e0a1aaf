"""Pieces join to their documents, and are cut where a tokenizer splits anyway."""

from itertools import groupby, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinkjax.data import vocabulary

TEXTS = st.lists(st.text("ab \n", max_size=120), max_size=4)


@given(TEXTS, st.integers(4, 20))
def test_pieces_join_to_their_documents_and_begin_with_white_space(documents, size):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vocabulary, "PIECE", size)
        found = list(vocabulary.cut(documents))
    numbers = [sum(piece.first for piece in found[: index + 1]) for index in range(len(found))]
    joined = [
        "".join(piece.text for _, piece in part) for _, part in groupby(zip(numbers, found, strict=True), lambda pair: pair[0])
    ]
    assert joined == documents
    assert [piece.last for piece in found] == [after.first for after in found[1:]] + [True] * bool(found)
    assert all(len(piece.text) <= size for piece in found)
    for before, after in pairwise(found):
        assert after.first or after.text[0].isspace() or not any(map(str.isspace, before.text[1:]))


@given(st.lists(st.text("aé🐋 ", max_size=9), max_size=5), st.integers(1, 60))
def test_the_beginning_is_so_many_bytes_and_no_half_character(documents, limit):
    found = "".join(text for _, text in vocabulary.beginning([("", text) for text in documents], limit)).encode()
    whole = "".join(documents).encode()
    assert whole.startswith(found)
    assert min(len(whole), limit) - 3 <= len(found) <= limit
    assert list(vocabulary.beginning([("a", text) for text in documents], None)) == [("a", text) for text in documents if text]
