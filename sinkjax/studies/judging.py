"""Judge a study's claims from its stores, next to the untrained twin; draw its figures and choose its short table."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sinkjax.analysis.estimates import Absent
from sinkjax.analysis.evidence import Evidence, Judgement
from sinkjax.analysis.judgement import identity, judge, untested
from sinkjax.analysis.summary import Row
from sinkjax.analysis.verdicts import Verdict, said
from sinkjax.studies.declaration import Claim, Described, Identity, Study
from sinkjax.studies.grids import At, Point
from sinkjax.studies.readings import Parts, Readings, claimed_rows, read_by
from sinkjax.studies.scope import FigureWord, Scope
from sinkjax.studies.settings import filled
from sinkjax.studies.specs import NOOP
from sinkjax.studies.words import Word

if TYPE_CHECKING:
    from sinkjax.report.section import Drawing
    from sinkjax.studies.results import Results


LISTED = 8  # maximum rows of described numbers in a table of claims
CONTROLS, TWIN = "-controls", "-twin"  # endings of the stores of a grid's controls, and of a grid on the untrained twin


def verdict(name: str, claim: Claim, read: Readings, twin: Readings, settings: Mapping[str, object]) -> Verdict:
    """Judge a claim.

    Args:
        name: The claim's name.
        claim: The claim.
        read: The stores of the model.
        twin: The stores of the untrained twin.
        settings: The study's settings, for the statement.

    Returns:
        The verdict; "untested" if a grid did not run or the paper's premise is not met.
    """
    stated = (filled(claim.statement or name, settings), claim.source, claim.paper)
    kind = {Identity: "identity", Described: "described"}.get(type(claim.contrast), "claim")
    if isinstance(claim.contrast, Described):
        return Verdict(name, *stated, untested(""), label=_listed(claim, read), kind=kind)
    try:
        if isinstance(claim.contrast, Identity):
            holds, text = claim.contrast.evaluate(read)
            return Verdict(name, *stated, identity(holds), label=text, kind=kind)
        holds, text = (True, "") if claim.given is None else claim.given.evaluate(read)
        if not holds:
            return Verdict(name, *stated, untested(text))
        parts = claim.contrast.evaluate(read)
    except Absent as error:
        return Verdict(name, *stated, untested(str(error)), kind=kind)
    judged = judge(evidence(claim.contrast, parts, read), sign=claim.sign, stays=claim.stays)
    label, why = _compared(parts, claim.sign), _uncontrolled(claim, parts)
    return Verdict(name, *stated, judged, _twin(claim, twin), label, parts.unit, _beside(claim, read), uncontrolled=why)


def _compared(parts: Parts, sign: int = 1) -> str:
    """Name the number that is judged: the contrast, turned round if the sign is negative, less its controls."""
    log = parts.unit == "log"
    inverse = "" if sign > 0 else "inverse of the " if log else "minus the "
    controls = "over the geometric mean" if log else "less the mean"
    return f"{inverse}{parts.label}" + (f", {controls} of its controls" if parts.controls is not None else "")


def _uncontrolled(claim: Claim, parts: Parts) -> str:
    """Explain why a claim has no controls; "" if it has."""
    if parts.controls is not None:
        return ""
    if claim.stays:
        return "a claim that something stays needs none"
    return str(claim.contrast.meaning.facts.get("uncontrolled", "no random edits were drawn for these conditions"))


def _listed(claim: Claim, read: Readings) -> str:
    """Format the rows of described numbers."""
    try:
        rows: list[Row] = claim.contrast.evaluate(read)
    except Absent as error:
        return str(error)
    if len(rows) > LISTED:
        return f"{len(rows)} numbers in the summary"
    lines = []
    for row in rows:
        rank = "" if row.rank is None else f" (percentile {row.rank.percentile:.1f} of {row.rank.controls:,} random ones)"
        lines.append(f"{row.condition}, {row.measure}: {said(row.value, '')}{rank}")
    return "; ".join(lines)


def evidence(contrast: Word, parts: Parts, read: Readings) -> Evidence:
    """Collect the rule's input: the numbers of a contrast, their clusters, and the kind of sample."""
    clusters = read.results.clusters(len(parts.contrast), *sorted(map(read.store, read_by(contrast))), genres=True)
    numbers, noun = (parts.contrast, parts.controls, parts.whole, parts.range), read.results.over.partition(",")[0]
    return Evidence(*numbers, clusters, noun, parts.all_controls, parts.relative, parts.whole_range)


def _twin(claim: Claim, twin: Readings) -> Judgement | None:
    """Judge a claim on the untrained twin; None if it did not run."""
    try:
        parts = claim.contrast.evaluate(twin)
    except Absent:
        return None
    return judge(evidence(claim.contrast, parts, twin), sign=claim.sign, stays=claim.stays)


def _beside(claim: Claim, read: Readings) -> tuple[str, ...]:
    """Format a claim's additional readouts, one line each."""
    lines = []
    for contrast in claim.beside:
        try:
            parts: Parts = contrast.evaluate(read)
        except Absent:
            continue
        found = judge(evidence(contrast, parts, read), sign=1)
        if found.D is not None:
            where = contrast.given.get("where")
            at = f", {read.where(where)}" if isinstance(where, At) and where != claim.contrast.given.get("where") else ""
            lines.append(f"{_compared(parts)}{at}: {said(found.D, parts.unit)}")
    return tuple(lines)


def readings(study: Study, results: Results, twin: bool = False) -> Readings:
    """Wrap a study's stores for its contrasts and figures."""
    return Readings(Scope(results.config, results.architecture), results, study.known, TWIN if twin else "", study.trainings)


def verdicts(study: Study, results: Results) -> tuple[Verdict, ...]:
    """Judge every claim of a study, next to the untrained twin.

    Args:
        study: The study.
        results: Its stores.

    Returns:
        One verdict per claim, in order.
    """
    read, twin = readings(study, results), readings(study, results, twin=True)
    return tuple(verdict(name, claim, read, twin, vars(results.config)) for name, claim in study.claims.items())


def exact_rows(study: Study, results: Results) -> list[Row]:
    """Make the summary rows of exact numbers; the table of claims gives the reason if a model has none."""
    read, found = readings(study, results), []
    for claim in study.claims.values():
        if isinstance(claim.contrast, Described):
            with contextlib.suppress(Absent):
                found += claim.contrast.evaluate(read)
    return found


def drawn_figure(study: Study, word: FigureWord, results: Results) -> Drawing | list[Drawing] | None:
    return word.evaluate(readings(study, results))


def featured_labels(study: Study, results: Results) -> list[str]:
    """Choose the short table: no edit, and the claims' conditions with at most one value per axis."""
    read, labels = readings(study, results), list[str]()
    for name in study.grids:
        if name in results and name != NOOP:
            points, first = read.points(name), dict[object, Point]()
            for row in (0, *claimed_rows(study, name, points, read.scope)):
                first.setdefault(points[row].place, points[row])
            labels += map(results.sweeps[name].row_label, first.values())
    return labels
