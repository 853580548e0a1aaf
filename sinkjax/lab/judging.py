"""Judge a study's claims from its stores, next to the untrained twin, and choose the rows of its short table."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from sinkjax.analysis.estimates import Absent
from sinkjax.analysis.evidence import Evidence, Judgement
from sinkjax.analysis.judgement import identity, judge, not_applicable
from sinkjax.analysis.summary import Row
from sinkjax.analysis.verdicts import Verdict, said
from sinkjax.config_files.documents import filled
from sinkjax.lab.claims import Claim, Statement
from sinkjax.lab.contrasts import Contrast, Parts
from sinkjax.lab.numbers import Stored
from sinkjax.lab.trace import Lab

LISTED = 8  # maximum rows of described numbers in a table of claims


def verdicts(lab: Lab, read: Stored) -> tuple[Verdict, ...]:
    """Judge every claim of a study, traced on its stores: one verdict per claim, in order."""
    twin, settings = replace(read, twin=True), vars(lab.settings)
    stated = lab.program.prose.claims
    said_of = {name: Statement(filled(one.text, settings), one.paper) for name, one in stated.items()}
    return tuple(_verdict(claim, read, twin, said_of.get(claim.name, Statement())) for claim in lab.claims.values())


def _verdict(claim: Claim, read: Stored, twin: Stored, stated: Statement) -> Verdict:
    """Judge a claim; "not applicable" if a sweep did not run or the paper's premise is not met."""
    about = (claim.name, stated.text or claim.name, claim.source, stated.paper)
    of: Any = claim.of
    if claim.kind == "described":
        return Verdict(*about, not_applicable(""), label=_listed(claim, read), kind=claim.kind)
    try:
        if claim.kind == "identity":
            holds, text = of(read)
            return Verdict(*about, identity(holds), label=text, kind=claim.kind)
        holds, text = (True, "") if claim.premise is None else claim.premise.test(read)
        if not holds:
            return Verdict(*about, not_applicable(text))
        parts, judged = _judged(claim, of, read)
    except Absent as error:
        return Verdict(*about, not_applicable(str(error)), kind=claim.kind)
    why = "" if parts.controls is not None else "a claim that something stays needs none" if claim.stays else parts.uncontrolled
    beside = tuple(_beside(claim, parts, read))
    text, unit, ceiling = _compared(parts, claim.sign), parts.unit, claim.ceiling
    return Verdict(*about, judged, _twin(claim, twin), text, unit, beside, uncontrolled=why, ceiling=ceiling)


def _judged(claim: Claim, contrast: Contrast, numbers: Stored) -> tuple[Parts, Judgement]:
    """Compute a contrast and judge it, clustered by the stores that it reads."""
    read = replace(numbers, seen={})
    parts = contrast(read)
    clusters = read.clusters(len(parts.contrast), *sorted(read.seen), genres=True)
    noun = read.over.partition(",")[0]
    evidence = Evidence(
        *(parts.contrast, parts.controls, parts.whole, parts.range, clusters, noun),
        *(parts.all_controls, parts.recovery),
    )
    return parts, judge(evidence, sign=claim.sign, stays=claim.stays)


def _twin(claim: Claim, twin: Stored) -> Judgement | None:
    """Judge a claim on the untrained twin; None if it did not run."""
    of: Any = claim.of
    try:
        return _judged(claim, of, twin)[1]
    except Absent:
        return None


def _beside(claim: Claim, main: Parts, read: Stored) -> Iterable[str]:
    """Format a claim's further readouts, one line each."""
    for contrast in claim.beside:
        with contextlib.suppress(Absent):
            parts, found = _judged(replace(claim, sign=1, stays=False), contrast, read)
            if found.D is not None:
                at = f", {parts.where.text}" if parts.where is not None and parts.where != main.where else ""
                yield f"{_compared(parts)}{at}: {said(found.D, parts.unit)}"


def _compared(parts: Parts, sign: int = 1) -> str:
    """Name the number that is judged: the contrast, turned round if the sign is negative, less its controls."""
    log = parts.unit == "log"
    inverse = "" if sign > 0 else "inverse of the " if log else "minus the "
    controls = "over the geometric mean" if log else "less the mean"
    return f"{inverse}{parts.label}" + (f", {controls} of its controls" if parts.controls is not None else "")


def _listed(claim: Claim, read: Stored) -> str:
    """Format the rows of described numbers."""
    of: Any = claim.of
    try:
        rows: list[Row] = of(read)
    except Absent as error:
        return str(error)
    if len(rows) > LISTED:
        return f"{len(rows)} numbers in the summary"
    lines = []
    for row in rows:
        rank = "" if row.rank is None else f" (percentile {row.rank.percentile:.1f} of {row.rank.controls:,} random ones)"
        lines.append(f"{row.condition}, {row.measure}: {said(row.value, '')}{rank}")
    return "; ".join(lines)


def exact_rows(lab: Lab, read: Stored) -> list[Row]:
    """Make the summary rows of exact numbers; the table of claims gives the reason if a model has none."""
    found: list[Row] = []
    for claim in lab.claims.values():
        of: Any = claim.of
        if claim.kind == "described":
            with contextlib.suppress(Absent):
                found += of(read)
    return found


def featured(lab: Lab, read: Stored) -> list[str]:
    """Choose the short table: no edit, and the claims' conditions (without claims, all) with at most one value per axis."""
    labels: list[str] = []
    for name, sweep in lab.sweeps.items():
        if name in read:
            claimed = {case for claim in lab.claims.values() for case in claim.read.cases.get(name, ())}
            claimed = claimed if lab.claims else {*sweep.edits}
            first: dict[object, str] = {}
            for point in read.points(name):
                if point.case is None or point.case in claimed:
                    first.setdefault(point.case and point.case.place, sweep.row_label(point))
            labels += first.values()
    return labels
