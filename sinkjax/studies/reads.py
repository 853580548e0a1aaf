"""The conditions and measures of a grid that a study's claims, figures and summary read."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sinkjax.errors import SinkjaxError
from sinkjax.studies.declaration import Claim, Study
from sinkjax.studies.grids import At, Point, matching
from sinkjax.studies.scope import Contrast, Measure, Scope
from sinkjax.studies.settings import config_type
from sinkjax.studies.words import Field, Word, words_in

if TYPE_CHECKING:
    pass


def claims_on(study: Study, name: str) -> list[Claim]:
    """The claims that read a grid or a computation."""
    return [claim for claim in study.claims.values() if name in read_by(claim)]


def judged_on(study: Study, name: str, scope: Scope) -> bool:
    """Whether a contrast that can be judged reads a grid or a computation, which then runs on the untrained twin too."""
    return any(isinstance(claim.contrast, Contrast) and possible(claim, scope) for claim in claims_on(study, name))


def read_by(claim: Claim) -> set[str]:
    """The grids and computations that a claim reads."""
    words = [word for part in claim.words for word in words_in(part) if isinstance(word, Word)]
    return {str(word.given[name]) for word in words for name in ("grid", "computation") if name in word.given}


def claimed_rows(study: Study, name: str, points: Sequence[Point], scope: Scope, controlled: bool = False) -> list[int]:
    """The conditions of a grid that claims are about.

    controlled: those whose contrast has controls; of a grid without claims, all.
    """
    rows: dict[int, None] = {}
    if controlled and not claims_on(study, name):
        return list(range(1, len(points)))
    for title, claim in study.claims.items():
        for contrast in (claim.contrast, *claim.beside) if not controlled or possible(claim, scope) else ():
            facts = contrast.meaning.facts if contrast.given.get("controls", True) else {}
            for argument, entry in contrast.given.items():
                chosen = isinstance(entry, At) and entry.given["grid"] == name
                if chosen and (not controlled or argument in facts.get("controlled", ())):
                    try:
                        rows.update(dict.fromkeys(matching(points, entry, scope)))
                    except SinkjaxError as error:
                        raise SinkjaxError(f"claim {title}: {error}") from None
    return sorted(rows)


def possible(claim: Claim, scope: Scope) -> bool:
    """Whether the architecture alone leaves the premise of a claim open; else neither controls nor the twin run for it."""
    for word in words_in(claim.given):
        if isinstance(word, Word):
            fits = word.meaning.facts.get("architecture")
            if fits is not None and not fits(scope.architecture, **word.given):
                return False
    return True


def measures_of(study: Study, name: str) -> list[Measure]:
    """Every measure that a grid is read by: from the summary (where its axes fit), from claims and from figures."""
    axes = {*(study.grids[name].given["over"] or {})}
    known = {*study.known, *(entry.name for entry in dataclasses.fields(config_type(study)))}
    found: dict[Measure, None] = {
        measure: None
        for measure in study.measures
        if {one.name for one in words_in(measure) if isinstance(one, Field)} <= axes | known
    }
    for claim in claims_on(study, name):
        for contrast in claim.words:
            found.update(dict.fromkeys(one for one in words_in(contrast) if isinstance(one, Measure)))
    for word in study.figures:
        over = (
            {word.given["over"]} if "over" in word.given else {one.given["grid"] for one in words_in(word) if isinstance(one, At)}
        )
        if name in over:
            found.update(dict.fromkeys(one for one in words_in(word) if isinstance(one, Measure)))
            if word.word == "activations":
                found.update(dict.fromkeys(study.measures))
    return list(found)
