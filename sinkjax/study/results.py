"""A study traced on its stores: its summary, and its claims judged beside the untrained twin."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from sinkjax.analysis.estimates import Absent
from sinkjax.analysis.evidence import Evidence, Judgement
from sinkjax.analysis.finite import lost
from sinkjax.analysis.judgement import identity, judge, not_applicable, not_taken
from sinkjax.analysis.summary import Column, Row, Table, column_rows, ranks_among
from sinkjax.analysis.verdicts import Verdict, said
from sinkjax.model.config import Config
from sinkjax.study.baseline import Unedited
from sinkjax.study.claims import Claim
from sinkjax.study.contrasts import Contrast, Parts
from sinkjax.study.measures import Measure
from sinkjax.study.numbers import CONTROLS, DOCUMENTS, Stored
from sinkjax.study.parts import ABSENT, Part, parts
from sinkjax.study.prose import Statement, filled
from sinkjax.study.took import Check
from sinkjax.study.trace import Lab
from sinkjax.study.work import Sweep

if TYPE_CHECKING:
    import xarray

LISTED = 8  # maximum rows of described numbers in a table of claims
VALUES = "values"  # attribute of a store: the values that decided its edits


def architecture_of(data: xarray.Dataset) -> Config:
    """Return the plain fields of the architecture that a store was made with: `layers`, `heads`, `width`, ..."""
    return cast("Config", SimpleNamespace(**data.attrs["sweep"]["config"]))


def traced(lab: Lab, stores: Mapping[str, xarray.Dataset]) -> tuple[Lab, Stored]:
    """Trace a study on its stores.

    Args:
        lab: The study, traced on their architecture.
        stores: Name -> store, if it exists.

    Returns:
        The study with the values that decided its edits, and its numbers.
    """
    absent = {name: str(store.attrs[ABSENT]) for name, store in stores.items() if ABSENT in store.attrs}
    stores = {name: store for name, store in stores.items() if name not in absent}
    if lab.missing:
        values: Mapping[str, Any] = next((store.attrs[VALUES] for store in stores.values() if VALUES in store.attrs), {})
        unedited = stores.get(next(iter(lab.sweeps), ""))  # stores of 0.3.0 keep no values; it has what measures read
        few = getattr(lab.settings, "control_prompts", None)
        with contextlib.suppress(Absent):
            lab = lab.again(
                values={**values, **lab.values}, unedited=None if unedited is None else Unedited(None, None, unedited, few)
            )
    found = {part.name: part for part in parts(lab) if isinstance(part, Part)}
    unit = "seeds" if lab.program.trains else DOCUMENTS
    return lab, Stored(lab.settings, lab.architecture, stores, lambda store: found[store].of(lab), unit, absent)


def summary(lab: Lab, read: Stored) -> Table:
    """Return the summary of all sweeps, (condition, name of the measure) -> row; of a shared label, the first sweep's row."""
    table: Table = {}
    for sweep in lab.sweeps.values():
        columns = [_column(read, sweep, measure) for measure in sweep.measures] if sweep.name in read else []
        for row in itertools.chain.from_iterable(zip(*columns, strict=True)):
            table.setdefault((row.condition, row.measure), row)
    return table


def _column(read: Stored, sweep: Sweep, measure: Measure) -> list[Row]:
    """Return a row for each condition. The effect of a measure made for an axis is relative to no edit at the same value."""
    points, store, own = read.points(sweep.name), f"{sweep.name}{CONTROLS}", measure.make is not None
    cases = [point.case for point in points]
    values = np.stack([read.value(measure, sweep, case) for case in cases])
    baseline = np.stack([read.value(measure, sweep, case, edited=False) for case in cases]) if own else values[0]
    column, ranks = Column(values, baseline), None
    drawn = {row: point.case for row, point in enumerate(read.points(store)) if point.draw >= 0} if store in read else {}
    if drawn:
        every = [read.every(measure, sweep, store, case) for case in drawn.values()]
        random = np.stack([one[row] for row, one in zip(drawn, every, strict=True)])
        of_random = np.stack([one[0] for one in every]) if own else baseline[: random.shape[1]]
        ranks = ranks_among(column.effects, cases, Column(random, of_random).effects, [*drawn.values()])
    labels = [(sweep.row_label(point), sweep.title or point.series) for point in points]
    clusters = read.clusters(values.shape[1], sweep.name)
    rows = column_rows(labels, measure.name, column, read.settings.seed, ranks, clusters)
    out = lost(read[sweep.name])
    return [dataclasses.replace(row, overflowed=out.get(one.label, 0)) for row, one in zip(rows, points, strict=True)]


def verdicts(lab: Lab, read: Stored) -> tuple[Verdict, ...]:
    """Judge every claim of a study, traced on its stores: one verdict per claim, in order."""
    twin, settings = replace(read, twin=True), vars(lab.settings)
    stated = lab.program.prose.claims
    said_of = {name: Statement(filled(one.text, settings), one.paper) for name, one in stated.items()}
    return tuple(_verdict(claim, read, twin, said_of.get(claim.name, Statement())) for claim in lab.claims.values())


def _verdict(claim: Claim, read: Stored, twin: Stored, stated: Statement) -> Verdict:
    """Judge a claim; "not applicable" if a sweep did not run, the paper's premise is not met or the edit did not take."""
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
        taken, took = True, claim.took
        if isinstance(took, Check):
            taken, took = took.test(read)
        elif took:
            took = f"the edit is its own check: {took}"
        if not taken:
            return Verdict(*about, not_taken(took), took=took)
        parts, judged = _judged(claim, of, read)
    except Absent as error:
        return Verdict(*about, not_applicable(str(error)), kind=claim.kind)
    why = "" if parts.controls is not None else "a claim that something stays needs none" if claim.stays else parts.uncontrolled
    beside = tuple(_beside(claim, parts, read))
    text, unit = _compared(parts, claim.sign), parts.unit
    extra: dict[str, Any] = {"uncontrolled": why, "split": claim.split, "sign": claim.sign, "took": took}
    return Verdict(*about, judged, _twin(claim, twin), text, unit, beside, **extra)


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
            claimed = {case for claim in lab.claims.values() for case in claim.cases(name)}
            claimed = claimed if lab.claims else {*sweep.edits}
            first: dict[object, str] = {}
            for point in read.points(name):
                if point.case is None or point.case in claimed:
                    first.setdefault(point.case and point.case.place, sweep.row_label(point))
            labels += first.values()
    return labels
