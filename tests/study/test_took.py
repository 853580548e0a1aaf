"""Manipulation checks: a claim on an edited run says how it is known that the edit did what its sentence says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sinkjax.analysis.evidence import NOT_TAKEN
from sinkjax.analysis.verdicts import Verdict
from sinkjax.errors import SinkjaxError
from sinkjax.study import effect, planted, removed
from sinkjax.study.contrasts import Check
from sinkjax.study.results import verdicts
from sinkjax.study.work import Condition
from tests.study import planted as stores
from tests.study.stores import Values
from tests.study.test_contrasts import FEW, LOSS, SIZE, SIZE_1, study

USUAL = np.array([2, 2.1, 2.05, 2.02])
NOT_FINITE = float("nan")


def judged(took: Callable[[Any], Check | str], left: float, controls: float = 100.0) -> Verdict:
    """The verdict on a loss that rises by 3, when the largest |h| falls from 100 to `left`, or to `controls` in random edits."""

    def numbers(store: str, point: Condition) -> Values:
        if point.case is None:
            return {("size", 0): 100, ("size", 1): 50, ("loss",): USUAL}
        if point.draw >= 0:
            return {("size", 0): controls, ("size", 1): controls, ("loss",): USUAL}
        sizes = left * np.array([0.5, 0.5, 1.5, 1.5])  # their mean counts, over all documents
        return {("size", 0): sizes, ("size", 1): sizes, ("loss",): USUAL + np.array([3.0, 3.1, 3, 3.1])}

    made = study(lambda lab, w: lab.claim("it", "here", effect(LOSS, w.masked), took=took(w)))
    (verdict,) = verdicts(*stores.planted(made, numbers, **{**FEW, "controls": 10}))
    return verdict


def test_an_edit_that_removes_leaves_at_most_a_tenth():
    gone, there = (judged(lambda w: removed(SIZE, w.masked), left) for left in (10.0, 10.5))
    assert gone.judged
    assert "largest |h| at position 0 is 10, 10% of 100 without it; at most 10% may be left" in gone.took
    assert (there.word, there.judged, there.judgement.reason) == (NOT_TAKEN, False, there.took)


def test_an_edit_that_plants_reaches_nine_tenths_of_its_target():
    target = lambda w: planted(SIZE_1, w.masked, SIZE)  # noqa: E731
    assert judged(target, 90.0, controls=1.0).judged
    assert judged(target, 89.0, controls=1.0).word == NOT_TAKEN


def test_random_controls_must_not_take():
    found = judged(lambda w: removed(SIZE, w.masked), 1.0, controls=5.0)
    assert found.word == NOT_TAKEN
    assert "but 10 of 10 random controls do the same" in found.judgement.reason


def test_an_overflow_has_not_taken():
    assert judged(lambda w: removed(SIZE, w.masked), NOT_FINITE).word == NOT_TAKEN


def test_a_claim_on_an_edited_run_without_a_check_is_refused():
    with pytest.raises(SinkjaxError, match=r"claim it reads an edited run, so it needs took=: removed"):
        judged(lambda w: "", 1.0)


def test_a_check_of_the_claims_own_measure_is_refused():
    with pytest.raises(SinkjaxError, match="the claim's own measure"):
        judged(lambda w: removed(LOSS, w.masked), 1.0)
