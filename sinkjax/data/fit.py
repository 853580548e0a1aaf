"""The number and length of prompts from a text of the user's, unless they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import islice
from numbers import Integral
from pathlib import Path
from typing import Any

from sinkjax.config_files.checks import LARGEST, MOST, refuse
from sinkjax.data.corpora import Split, checked, homes
from sinkjax.data.reading import Division
from sinkjax.errors import short

PROMPTS, LENGTH = 32, 64  # of a card, unless others are asked for or the text has fewer
SHORTEST = 12  # tokens of a passage that is used unless a length is asked for: 8 queries behind each of the first positions


def check_sizes(prompts: Any, length: Any, seed: Any, dashes: str = "") -> None:
    """Raise unless the numbers of a card are integers in their ranges; prompts and length may be None. dashes: before a name."""
    ranges = {"prompts": (prompts, 1, MOST["prompts"]), "length": (length, SHORTEST, LARGEST), "seed": (seed, 0, LARGEST)}
    for name, (value, least, most) in ranges.items():
        number = isinstance(value, Integral) and not isinstance(value, bool)
        right = least <= value <= most if number else value is None and name != "seed"
        shown = f"{value:,}" if number else short(value)
        refuse(not right, f"{dashes}{name} must be {least:,} to {most:,}, not {shown}")


def fitted(
    source: str | Path,
    count: int,
    length: int,
    *,
    given: Collection[str] = (),
    split: Split = "all",
    size: Callable[[str], int] = len,
    field: str = "text",
    division: Division = "auto",
) -> tuple[int, int, str]:
    """Fit the number and the length of passages to a user's text that has too few of the usual length.

    All prompts of a study have one length, because attention to a key is a mean over the queries behind it. So passages are cut
    to the shortest one that is used. The n longest are used, with the n that makes n times the square root of this length
    largest: prompts count more than tokens, but a few short ones do not cut the others. Passages below `SHORTEST` tokens are
    not used unless asked for.

    Args:
        source, split, size, field, division: See `passages`.
        count: Number of passages, if the text has so many.
        length: Length of a passage, if enough of them have it.
        given: "prompts" or "length", if they are asked for and must not change.

    Returns:
        The number, the length, and a sentence about them, "" if nothing changed.

    Raises:
        SinkjaxError: See `passages`; no passage is long enough.
    """
    documents, description = checked(source, count, split, length, field, division)
    every = homes(documents, split)
    enough = sum(1 for _ in islice((text for text in every if size(text) >= length), count)) == count
    if enough or {"prompts", "length"} <= {*given}:
        return count, length, ""
    sizes = sorted(map(size, every), reverse=True)
    least = length if "length" in given else min(SHORTEST, length)
    useful = [tokens for tokens in sizes if tokens >= least]
    way = f"choose --length {sizes[0]} or less" if "length" in given else "join some to longer ones"
    refuse(not useful, f"no passage of {description} has {least} tokens, and the longest has {sizes[0]}: {way}")
    held = f"of {len(sizes)} passages of {description} only {len(useful)} have {least} tokens: choose --prompts {len(useful)}"
    refuse("prompts" in given and len(useful) < count, f"{count} prompts were asked for, but {held}")
    numbers = [count] if "prompts" in given else range(1, min(count, len(useful)) + 1)
    number = max(numbers, key=lambda n: (n * min(length, useful[n - 1]) ** 0.5, n))
    fit = min(length, useful[number - 1])
    shorter = [tokens for tokens in sizes[number:count] if tokens < fit]
    left = f"; {len(shorter)} shorter left out, which --length {shorter[-1]} would take" if shorter and shorter[-1] > 1 else ""
    return number, fit, f"{number} of {len(sizes)} passages of {description}, cut to {fit} tokens{left}"
