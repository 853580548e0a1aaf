"""Judge the claims of a study on its stores, next to the untrained twin, and draw its figures and choose its short table."""

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
from sinkjax.studies.grids import At
from sinkjax.studies.readings import Parts, Readings, claimed_rows
from sinkjax.studies.scope import FigureWord, Scope
from sinkjax.studies.settings import filled
from sinkjax.studies.specs import NOOP

if TYPE_CHECKING:
    from sinkjax.report.section import Drawing
    from sinkjax.studies.results import Results


LISTED = 8  # rows of described numbers that a table of claims shows
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
    return claim.contrast.meaning.of(read, **claim.contrast.given)


def parts_of(claim: Claim, read: Readings) -> Parts:
    """The numbers of a claim's contrast."""
    return claim.contrast.meaning.of(read, **claim.contrast.given)


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
    except Absent:
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


def readings(study: Study, results: Results, twin: bool = False) -> Readings:
    """The stores of a study as its contrasts and figures read them."""
    scope = Scope(results.config, results.architecture)
    return Readings(scope, results, study.known, TWIN if twin else "", study.trainings)


def verdicts(study: Study, results: Results) -> tuple[Verdict, ...]:
    """Every claim of a study, judged, with the untrained twin beside.

    Args:
        study: The study.
        results: Its stores.

    Returns:
        A verdict for each claim, in their order.
    """
    read, twin = readings(study, results), readings(study, results, twin=True)
    return tuple(verdict(name, claim, read, twin, vars(results.config)) for name, claim in study.claims.items())


def exact_rows(study: Study, results: Results) -> list[Row]:
    """The summary rows of exact numbers; the table of claims says why where a model has none."""
    read, found = readings(study, results), []
    for claim in study.claims.values():
        if isinstance(claim.contrast, Described):
            with contextlib.suppress(Absent):
                found += rows_of(claim, read)
    return found


def drawn_figure(study: Study, word: FigureWord, results: Results) -> Drawing | list[Drawing] | None:
    return word.meaning.of(readings(study, results), **word.given)


def featured_labels(study: Study, results: Results) -> list[str]:
    """The conditions of the short table: no edit, and the claims' conditions with at most one value of each axis."""
    labels: list[str] = []
    for name in study.grids:
        if name not in results or name == NOOP:
            continue
        points = readings(study, results).points(name)
        scope = Scope(results.config, results.architecture)
        sweep = results.sweeps[name]
        rows = [0, *claimed_rows(study, name, points, scope)]
        seen: set[object] = set()
        for row in rows:
            point = points[row]
            if point.place not in seen:
                seen.add(point.place)
                labels.append(sweep.row_label(point))
    return labels
