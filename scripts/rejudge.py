"""Judge the kept claims again by the present rule, and list the words that change.

python scripts/rejudge.py

Reads docs/results/data/claims.csv, which the rule of 0.3.0 judged, and writes judgement_changes.csv there and the table of
docs/judgements.md. The samples were not kept, so the present rule reads the intervals of then, and cannot ask for the sink that a
premise needs now.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from sections import write_section

from sinkjax.analysis.evidence import UNJUDGED, ContrastRank
from sinkjax.analysis.judgement import FEWEST_CONTROLS, SMALL, word_of
from sinkjax.analysis.verdicts import is_ours
from sinkjax.report.markdown import table as markdown

DOCS = Path(__file__).resolve().parents[1] / "docs"
CLAIMS, CHANGES = Path("results/data") / "claims.csv", Path("results/data") / "judgement_changes.csv"
COLUMNS = ("study", "claim", "model", "bos", "text", "before", "after", "why", "s", "s_low", "s_high", "d", "d_low", "d_high")
Row = Mapping[str, str]
TWIN = " (untrained too)"
NEW = ("absent", "opposite", "moves", "confirmed", *UNJUDGED)
WHY = {
    "weaker": "there is no second line at 1/2: the number says how large",
    "shown": "there is no second line at 1/2: the number says how large",
    "differs": "an effect that is not there and the opposite one have different words",
    "untested": "a premise, an object or a whole that is not there has its own word",
    "replicates": "S must be above 1/10, and with a W nothing else is asked",
    "undecided": "1/10 takes the place of 1/2",
}


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
    twin = float(row["twin_s"] or 0) > SMALL if share and not row["stays"] else TWIN in row["word"]
    said = "confirmed" if word == "replicates" and is_ours(row["source"]) else word
    return said + TWIN * (word == "replicates" and twin and TWIN in row["word"])


def worded(row: Row) -> Row:
    """A kept claim with its word by the present rule; identities hold or fail by any."""
    return {**row, "word": again(row)} if row["kind"] == "claim" else row


def changes(rows: Iterable[Row]) -> list[Row]:
    """The claims with another word; "confirmed" is another name of "replicates"."""
    found = []
    for row in rows:
        after = again(row) if row["kind"] == "claim" else row["word"]
        before = row["word"]
        if after.replace("confirmed", "replicates") != before:
            why = (
                "there is no W, so only the sign of D counts"
                if not row["whole"] and before != "untested"
                else WHY[before.removesuffix(TWIN)]
            )
            found.append({**row, "before": before, "after": after, "why": why})
    return found


def table(found: Sequence[Row]) -> str:
    """How many words change, from which to which, and why."""
    kinds: dict[tuple[str, str, str], list[Row]] = {}
    for row in found:
        kinds.setdefault((row["before"], row["after"], row["why"]), []).append(row)
    lines = sorted(((*kind, str(len(rows))) for kind, rows in kinds.items()), key=lambda line: -int(line[3]))
    return markdown(("before", "after", "why", "claims"), lines)


def main(docs: Path = DOCS) -> None:
    """Write the changed words and the table of the page."""
    with (docs / CLAIMS).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    found = changes(rows)
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(found)
    (docs / CHANGES).write_text(out.getvalue(), encoding="utf-8")
    judged = sum(row["kind"] == "claim" for row in rows)
    text = (
        f"Of {judged} claims of the [protocol](results/protocol.md), {len(found)} have another word"
        f" ([all]({CHANGES.as_posix()})):"
    )
    write_section(docs / "judgements.md", "judgement changes", f"{text}\n\n{table(found)}", "# How claims are judged")


if __name__ == "__main__":
    main()
