"""Verdicts: claims judged on one model, as text for pages and as CSV."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sinkjax.analysis.estimates import three_digits
from sinkjax.analysis.evidence import UNJUDGED, Judgement
from sinkjax.analysis.intervals import Interval
from sinkjax.analysis.judgement import with_twin
from sinkjax.analysis.summary import bounds
from sinkjax.config_files.tables import csv_text

COLUMNS = (
    *("study", "model", "claim", "kind", "stays", "statement", "source", "paper", "word", "contrast", "unit"),
    *("d", "d_low", "d_high", "s", "s_low", "s_high", "whole", "split"),
    *("n", "controls", "controls_below", "method", "twin_s", "twin_d", "reason", "took"),
)

OURS = "ours"  # the source of a claim without a paper, or its start: "ours, on Kiya et al. 2026"


@dataclass(frozen=True)
class Verdict:
    """A claim as judged on one model.

    Attributes:
        name: The claim's name in its study.
        statement, source, paper: The claim's own.
        judgement: The rule's judgement.
        twin: Judgement on the untrained twin; None if it did not run.
        label: The comparison as text.
        unit: Unit of D and W; "log" if they are logarithms of ratios.
        beside: Additional readouts, one line each.
        kind: "claim", "identity", or "described" (exact numbers, without a test).
        uncontrolled: The reason why there are no matched controls; "" if there are.
        split: The share of the whole that a token as strong as a competitor gets, if that stays visible; None elsewhere.
        sign: -1 if the claim is that something falls.
        took: The manipulation check of the edit with its numbers, or why the edit is its own check; "" if nothing is edited.
    """

    name: str
    statement: str
    source: str
    paper: str
    judgement: Judgement
    twin: Judgement | None = None
    label: str = ""
    unit: str = ""
    beside: tuple[str, ...] = ()
    kind: str = "claim"
    uncontrolled: str = ""
    split: float | None = None
    sign: int = 1
    took: str = ""

    @property
    def word(self) -> str:
        """The word, combined with the untrained twin's."""
        return f"{self.plain} (untrained too)" if self.settled.untrained else self.plain

    @property
    def plain(self) -> str:
        """The word without the twin's; "confirmed" for a claim of ours that replicates."""
        if self.kind == "described":
            return "described"
        word = self.judgement.word
        return "confirmed" if word == "replicates" and self.ours else word

    @property
    def ours(self) -> bool:
        """Whether the claim is ours."""
        return is_ours(self.source)

    @property
    def judged(self) -> bool:
        """Whether the claim counts as judged."""
        return self.kind == "claim" and self.judgement.word not in UNJUDGED

    @property
    def settled(self) -> Judgement:
        """The judgement, combined with the twin's."""
        return self.judgement if self.twin is None else with_twin(self.judgement, self.twin)

    @property
    def share(self) -> bool:
        """Whether the effect's size is known as a share of the whole."""
        return is_known(self.judgement.S)

    @property
    def number(self) -> str:
        """The single number that represents the evidence: the share of the whole, else the effect, else ""."""
        if self.share:
            gets = "gets {:.0f}% or somewhat more" if self.sign > 0 else "takes {:.0f}% or somewhat less"
            split = "" if self.split is None else f" (a token as strong {gets.format(100 * self.split)})"
            return f"{said(self.judgement.S, 'share')} of the whole{split}"
        return said(self.judgement.D, self.unit) if is_known(self.judgement.D) else ""

    @property
    def numbers(self) -> str:
        """Effect, interval, controls and size, in this order; "" if nothing was measured."""
        found = self.judgement
        if found.D is None:
            return self.label
        parts = [f"{self.label}: {said(found.D, self.unit)}"]
        if found.rank is not None:
            tied = f" ({found.rank.tied} equal)" if found.rank.tied else ""
            parts.append(f"above {found.rank.below} of {found.rank.of} controls{tied}")
        elif self.uncontrolled:
            parts.append(f"no controls: {self.uncontrolled}")
        if self.share:
            parts.append(f"{said(found.S, 'share')} of the whole, {said(found.W, self.unit)}")
        if self.twin is not None and self.twin.D is not None:
            size = said(self.twin.S, "share") if is_known(self.twin.S) else said(self.twin.D, self.unit)
            parts.append(f"untrained twin {size}")
        return "; ".join(parts)


def is_ours(source: str) -> bool:
    """Return whether the source of a claim names no paper that makes it."""
    return not source or source.partition(",")[0] == OURS


def is_known(value: Interval | None) -> bool:
    """Return whether a number was measured and has a mean."""
    return value is not None and value.mean is not None


def said(value: Interval | None, unit: str) -> str:
    """Format a mean with its interval.

    Args:
        value: The mean; None if it was not computed.
        unit: Unit of the mean; "log" prints the ratio instead of its logarithm, "share" a percentage.

    Returns:
        Text such as "12.5 percentage points [8.1, 16.9]".
    """
    if value is None or value.mean is None:
        return "undefined"
    show, after = {
        "log": (lambda number: three_digits(math.exp(number)), " times"),
        "share": (lambda number: f"{100 * number:z.0f}", "%"),
    }.get(unit, (three_digits, unit and f" {unit}"))
    head = f"{show(value.mean)}{after}"
    return head if value.low is None else f"{head} [{show(value.low)}, {show(value.high)}]"


def verdicts_csv(study: str, verdicts: Sequence[Verdict], model: str = "") -> str:
    """Format verdicts as CSV, one line each, with D, S and W as numbers; logarithms stay logarithms.

    Args:
        study: Name of the study.
        verdicts: The study's verdicts.
        model: Name of the model.

    Returns:
        The CSV text.
    """
    rows: list[tuple[Any, ...]] = [COLUMNS]
    for one in verdicts:
        found = one.judgement
        below, count = ("", 0) if found.rank is None else (found.rank.below, found.rank.of)
        twin, stays = one.twin or Judgement("undecided"), "yes" if found.stays else ""
        cells = (study, model, one.name, one.kind, stays, one.statement, one.source, one.paper, one.word, one.label, one.unit)
        numbers = (*_ends(found.D), *_ends(found.S), _ends(found.W)[0], "" if one.split is None else one.split)
        method = f"{found.method}; no controls: {one.uncontrolled}" if one.uncontrolled else found.method
        last = (found.n, count, below, method, _ends(twin.S)[0], _ends(twin.D)[0], found.reason, one.took)
        rows.append((*cells, *numbers, *last))
    return csv_text(rows)


def _ends(value: Interval | None) -> tuple[Any, ...]:
    return ("", "", "") if value is None else bounds(value)
