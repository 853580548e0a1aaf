"""Documents cut into pieces that are tokenised side by side, without a word of a text being lost or cut."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

PIECE = 1 << 16  # characters of a piece at most
GROUP = 1 << 21  # characters that are tokenised side by side, about


class Piece(NamedTuple):
    """A stretch of a document, and whether it is its first or its last one."""

    text: str
    first: bool
    last: bool


def cut(documents: Iterable[str]) -> Iterator[Piece]:
    """Documents in pieces that join to them, each but the first of a document beginning with white space.

    Byte-level tokenizers split there anyway, so the tokens match the whole text's; a stretch without any white space is
    cut where it is too long.
    """
    for text in documents:
        edges = [0]
        while len(text) - edges[-1] > PIECE:
            space = re.search(r"\s+\S*$", text[edges[-1] + 1 : edges[-1] + PIECE])
            edges.append(edges[-1] + (1 + space.start() if space else PIECE))
        for number, start in enumerate(edges):
            last = number == len(edges) - 1
            yield Piece(text[start : None if last else edges[number + 1]], number == 0, last)


def groups(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Pieces in lists of about `GROUP` characters."""
    group: list[Piece] = []
    size = 0
    for piece in pieces:
        group.append(piece)
        size += len(piece.text)
        if size >= GROUP:
            yield group
            group, size = [], 0
    if group:
        yield group


def beginning(documents: Iterable[tuple[str, str]], limit: int | None) -> Iterator[tuple[str, str]]:
    """The documents (domain, text) that hold something, as far as `limit` bytes of UTF-8 go; None: all of them."""
    left = limit
    for domain, text in documents:
        if left is not None:
            raw = text.encode()
            text, left = raw[:left].decode(errors="ignore"), left - len(raw)
        if text:
            yield domain, text
        if left is not None and left <= 0:
            return
