"""From a study's stores to its page: verdicts, exact numbers, figures and the conditions of the short table."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from sinkjax.analysis.estimates import Absent
from sinkjax.analysis.summary import Row
from sinkjax.analysis.verdicts import Verdict
from sinkjax.studies.declaration import Described, Study
from sinkjax.studies.judging import rows_of, verdict
from sinkjax.studies.readings import Readings
from sinkjax.studies.reads import claimed_rows
from sinkjax.studies.scope import FigureWord, Scope
from sinkjax.studies.specs import NOOP

if TYPE_CHECKING:
    from sinkjax.report.section import Drawing
    from sinkjax.studies.results import Results


CONTROLS, TWIN = "-controls", "-twin"


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
    found: Drawing | list[Drawing] | None = word.meaning.of(readings(study, results), **word.given)
    return found


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
