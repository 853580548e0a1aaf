"""Judge the claims of a study on its stores, with the untrained twin beside."""

from __future__ import annotations

from collections.abc import Mapping

from sinkjax.analysis.estimates import Absent
from sinkjax.analysis.evidence import Evidence, Judgement
from sinkjax.analysis.judgement import identity, judge, untested
from sinkjax.analysis.summary import Row
from sinkjax.analysis.verdicts import Verdict, said
from sinkjax.studies.declaration import Claim, Described, Identity
from sinkjax.studies.grids import At
from sinkjax.studies.readings import Parts, Readings
from sinkjax.studies.settings import filled

LISTED = 8  # rows of described numbers that a table of claims shows


def verdict(name: str, claim: Claim, read: Readings, twin: Readings, settings: Mapping[str, object]) -> Verdict:
    """Judge a claim.

    Args:
        name: The claim's name.
        claim: The claim.
        read: The stores of the model.
        twin: The stores of the untrained twin.
        settings: The study's settings, for the statement.

    Returns:
        The verdict; "untested" where a grid did not run or the paper's premise is not met.
    """
    stated = (filled(claim.statement or name, settings), claim.source, claim.paper)
    if isinstance(claim.contrast, Identity):
        return _identity(name, stated, claim, read)
    if isinstance(claim.contrast, Described):
        return Verdict(name, *stated, untested(""), label=_listed(claim, read), kind="described")
    try:
        holds, text = (True, "") if claim.given is None else claim.given.meaning.of(read, **claim.given.given)
        if not holds:
            return Verdict(name, *stated, untested(text))
        parts = parts_of(claim, read)
    except Absent as error:
        return Verdict(name, *stated, untested(str(error)))
    judged = judge(evidence(parts, read), sign=claim.sign, stays=claim.stays)
    label = parts.label if claim.sign > 0 else f"{'inverse of the' if parts.unit == 'log' else 'minus the'} {parts.label}"
    why = _uncontrolled(claim, parts)
    return Verdict(name, *stated, judged, _twin(claim, twin), label, parts.unit, _beside(claim, read), uncontrolled=why)


def _uncontrolled(claim: Claim, parts: Parts) -> str:
    """Why a claim is compared with no controls, as text; "" if it is."""
    if parts.controls is not None:
        return ""
    if claim.stays:
        return "a claim that something stays needs none"
    return str(claim.contrast.meaning.facts.get("uncontrolled", "no random edits were drawn for these conditions"))


def _identity(name: str, stated: tuple[str, str, str], claim: Claim, read: Readings) -> Verdict:
    try:
        holds, text = claim.contrast.meaning.of(read, **claim.contrast.given)
    except Absent as error:
        return Verdict(name, *stated, untested(str(error)), kind="identity")
    return Verdict(name, *stated, identity(holds), label=text, kind="identity")


def _listed(claim: Claim, read: Readings) -> str:
    """The rows of described numbers as text."""
    try:
        rows = rows_of(claim, read)
    except Absent as error:
        return str(error)
    if len(rows) > LISTED:
        return f"{len(rows)} numbers in the summary"
    lines = []
    for row in rows:
        rank = "" if row.rank is None else f" (percentile {row.rank.percentile:.1f} of {row.rank.controls:,} random ones)"
        lines.append(f"{row.condition}, {row.measure}: {said(row.value, '')}{rank}")
    return "; ".join(lines)


def rows_of(claim: Claim, read: Readings) -> list[Row]:
    """The summary rows of described numbers."""
    found: list[Row] = claim.contrast.meaning.of(read, **claim.contrast.given)
    return found


def parts_of(claim: Claim, read: Readings) -> Parts:
    """The numbers of a claim's contrast."""
    found: Parts = claim.contrast.meaning.of(read, **claim.contrast.given)
    return found


def evidence(parts: Parts, read: Readings) -> Evidence:
    """Input of the rule: the numbers, their clusters, and the kind of sample."""
    results, count = read.results, len(parts.contrast)
    clusters = results.genres(count)
    if clusters is None or len(set(clusters.tolist())) in (1, count):
        clusters = results.clusters(count)
    return Evidence(
        parts.contrast,
        parts.controls,
        parts.whole,
        parts.range,
        clusters,
        results.over.partition(",")[0],
        parts.all_controls,
        parts.relative,
        parts.whole_range,
    )


def _twin(claim: Claim, twin: Readings) -> Judgement | None:
    """The judgement on the untrained twin, or None where it did not run."""
    try:
        parts = parts_of(claim, twin)
    except (Absent, KeyError):
        return None
    return judge(evidence(parts, twin), sign=claim.sign, stays=claim.stays)


def _beside(claim: Claim, read: Readings) -> tuple[str, ...]:
    """The further readouts of a claim, each as a line."""
    lines = []
    for contrast in claim.beside:
        try:
            parts: Parts = contrast.meaning.of(read, **contrast.given)
        except Absent:
            continue
        found = judge(evidence(parts, read), sign=1)
        if found.D is not None:
            where = contrast.given.get("where")
            at = ""
            if isinstance(where, At) and where != claim.contrast.given.get("where"):
                at = f", {read.where(where)}"
            lines.append(f"{parts.label}{at}: {said(found.D, parts.unit)}")
    return tuple(lines)
