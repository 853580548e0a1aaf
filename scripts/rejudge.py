"""The words of the kept claims by the present rule.

The rule of 0.3.0 judged most of docs/results/data/claims.csv. The samples were not kept, so the present rule reads the intervals
of then, and cannot ask for the sink that a premise needs now. Of the untrained model it reads the mean,
since no interval was kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from sinkjax.analysis.evidence import UNJUDGED, ContrastRank
from sinkjax.analysis.judgement import FEWEST_CONTROLS, SMALL, word_of
from sinkjax.analysis.verdicts import is_ours

Row = Mapping[str, str]
TWIN = " (untrained too)"
NEW = ("absent", "opposite", "moves", "confirmed", *UNJUDGED)
FIFTEEN = re.compile(r"\b15 (documents|prompts)\b")  # the earlier protocol, whose words could not all be "untrained too"


def again(row: Row) -> str:
    """The word of a kept claim by the present rule, from its interval and its rank; a word that only this rule gives stays."""
    if row["word"].removesuffix(TWIN) in NEW:
        return row["word"]
    if row["word"] == "untested":
        undone = "damage" in row["contrast"] and "not shown to be above 0" in row["reason"]
        return "nothing to undo" if undone else "not applicable"
    share = bool(row["whole"])
    low, high = (row[f"{'s' if share else 'd'}_{end}"] for end in ("low", "high"))
    if not low:
        return "undecided"
    of, below = int(row["controls"] or 0), int(row["controls_below"] or 0)
    enough = of >= FEWEST_CONTROLS or row["reason"] == ""  # fewer decided only if no more existed
    beyond = (
        (True, True)
        if not of
        else (enough and ContrastRank(below, 0, of).above, enough and ContrastRank(of - below, 0, of).above)
    )
    word = word_of(float(low), float(high), share, row["stays"] == "yes", beyond)
    earlier = FIFTEEN.search(row["method"]) is not None
    twin = float(row["twin_s"] or 0) > SMALL if earlier and share and not row["stays"] else TWIN in row["word"]
    said = "confirmed" if word == "replicates" and is_ours(row["source"]) else word
    return said + TWIN * (word == "replicates" and twin)


def worded(row: Row) -> Row:
    """A kept claim with its word by the present rule; identities hold or fail by any."""
    return {**row, "word": again(row)} if row["kind"] == "claim" else row
