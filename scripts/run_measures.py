"""Measures of the runs of plan-0.4, for the pages of its sections."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import queue_runs
from long_tables import as_text

from sinkjax.analysis import intervals

Entry = dict[str, Any]  # what is kept of a run
SINKS = 0.05  # the plan's least share of heads and blocks of a model with a sink
SEEDS = len(queue_runs.SEEDS)


@dataclass(frozen=True)
class Measure:
    """A number of a run. share: whether it is one of a whole, written in per cent."""

    name: str
    of: Callable[[Entry], float]
    share: bool = True


def rate(entry: Entry, kind: str = "bos") -> float:
    """Share of heads and blocks that sink on the first token, behind BOS ("bos") or without it ("plain")."""
    return float(entry["card"][kind]["by key"]["rate"][0])


SINKING = Measure("heads that sink", rate)
ATTENTION = Measure("attention to BOS", lambda entry: float(np.mean(entry["end"]["received"])), share=False)
ALONE = Measure("largest activation of BOS alone", lambda entry: entry["card"]["bos"]["scan"]["first"], share=False)
LOSS = Measure("loss", lambda entry: entry["end"]["loss"], share=False)


def of_row(kept: queue_runs.Kept, row: str) -> list[Entry]:
    """The finished runs of a row, by seed."""
    return [entry for (name, _), entry in sorted(kept.items()) if name == row and entry["card"]]


def values(entries: Sequence[Entry], measure: Measure) -> list[float]:
    """A measure of each run."""
    return [measure.of(entry) for entry in entries]


def shown(taken: Sequence[float], measure: Measure) -> str:
    """A mean, with its interval from the number of seeds on that the plan judges, unless both ends print as the mean."""
    scale, unit, form = (100, "%", "z.0f") if measure.share else (1, "", "#.3g")
    mean, found = f"{scale * float(np.mean(taken)):{form}}", intervals.interval(taken)
    if len(taken) < SEEDS or found.low is None or found.high is None:
        return f"{mean}{unit}"
    ends = [f"{scale * end:{form}}" for end in (found.low, found.high)]
    return f"{mean}{unit}" if {*ends} == {mean} else f"{mean}{unit} [{', '.join(ends)}]"


def as_csv(rows: Mapping[str, Sequence[Entry]], measures: Sequence[Measure]) -> str:
    """The measures of every run."""
    lines = ([row, entry["seed"], *(f"{one.of(entry):.4g}" for one in measures)] for row, own in rows.items() for entry in own)
    return as_text(("row", "seed", *(one.name for one in measures)), lines)
