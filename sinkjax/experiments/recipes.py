"""Studies that are not declarations yet, in the terms of the framework."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from sinkjax.analysis.rules import Judgement
from sinkjax.analysis.summary import Row
from sinkjax.experiments import base
from sinkjax.report import section as report
from sinkjax.studies import folder as results


class Said(Judgement):
    """A claim whose evidence was written by hand."""

    @property
    def evidence(self) -> str:
        return self.rule


def recipe(chosen: Any) -> Any:
    from sinkjax.studies.registry import _entry

    return importlib.import_module(_entry(chosen.experiment)[2])


def specs(chosen: Any, architecture: Any) -> Any:
    return recipe(chosen).jobs(chosen.config, architecture)


def section(chosen: Any, folder: Path) -> report.Section:
    from sinkjax.experiments.identity import checked
    from sinkjax.experiments.illustrations import illustrated

    study = recipe(chosen)
    stores = {name: results.open_store(chosen.store or results.store_path(folder, name)) for name in study.STORES}
    extras = {name: results.store_path(folder, name) for name in getattr(study, "EXTRAS", ())}
    shown = {name: results.open_store(path) for name, path in extras.items() if path.exists()}
    return converted(checked(illustrated(study.section(chosen.config, {**stores, **shown}), shown), shown))


def converted(old: base.Section) -> report.Section:
    verdicts = {"confirmed": "supported", "not confirmed": "inconclusive"}
    return report.Section(
        study=old.experiment,
        title=old.title,
        question=old.claim,
        findings=old.findings,
        rows=tuple(
            row
            if isinstance(row, Row)
            else Row(row.arm, row.group, row.measure, row.value, row.effect, row.percentile, row.controls)
            for row in old.rows
        ),
        featured=old.featured,
        drawings=old.drawings,
        notes=old.notes,
        provenance=old.provenance,
        claims=tuple(
            Said(claim.statement, verdicts.get(claim.verdict, claim.verdict), claim.evidence, paper=claim.paper)  # type: ignore
            for claim in old.claims
        ),
        views=old.views,
        samples=old.samples,
        subject=old.subject,
        over=old.over,
    )
