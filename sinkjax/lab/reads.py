"""What claims and figures read: the measures and statistics of each sweep, and the conditions that are judged."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sinkjax.lab.claims import Claim
from sinkjax.lab.conditions import Sweep, Where
from sinkjax.lab.measures import Measure, merged
from sinkjax.lab.places import Case
from sinkjax.lab.trace import Lab
from sinkjax.probes.probe import Probe


def claims_on(lab: Lab, name: str) -> list[Claim]:
    """Return the claims that read a sweep or a calculation."""
    return [claim for claim in lab.claims.values() if name in claim.read.measures or name in claim.read.named]


def judged_on(lab: Lab, name: str) -> bool:
    """Return whether a claim whose premise can hold reads a sweep or a calculation."""
    return any(claim.kind == "claim" and claim.possible for claim in claims_on(lab, name))


def claimed_on(lab: Lab, name: str) -> set[Case]:
    """Return the conditions of a sweep that claims are about."""
    return {case for claim in lab.claims.values() if claim.kind == "claim" for case in claim.read.cases.get(name, ())}


def controlled_on(lab: Lab, name: str) -> list[Case]:
    """Return the conditions of a sweep with controls: the claimed ones, or all if no claim is about it."""
    cases = list(lab.sweeps[name].edits)
    if not claims_on(lab, name):
        return cases
    chosen = {case for claim in lab.claims.values() if claim.possible for case in claim.read.controlled.get(name, ())}
    return [case for case in cases if case in chosen]


def measures_on(lab: Lab, sweep: Sweep) -> list[Measure]:
    """Return every measure that reads a sweep: in its summary, in claims and in figures."""
    found = dict.fromkeys(sweep.measures)
    for claim in lab.claims.values():
        found.update(dict.fromkeys(claim.read.measures.get(sweep.name, ())))
    return list(found | dict.fromkeys(drawn_on(lab, sweep)))


def drawn_on(lab: Lab, sweep: Sweep) -> list[Measure]:
    """Return the measures among the arguments of a sweep's figures; a function of layers gives one."""
    found: list[Measure] = []
    for figure in lab.figures:
        given = [*_flat([figure.arguments, figure.options])]
        if any(one is sweep or (isinstance(one, Where) and one.sweep is sweep) for one in given):
            found += [one for one in given if isinstance(one, Measure)]
            found += [one(layers=None) for one in given if callable(one) and not isinstance(one, Measure)]
    return found


def _flat(given: Iterable[Any]) -> Iterator[Any]:
    """Yield what lists, tuples and tables hold, all the way down."""
    for one in given:
        if isinstance(one, Mapping):
            yield from _flat(one.values())
        elif isinstance(one, list | tuple) and not isinstance(one, Where):
            yield from _flat(one)
        else:
            yield one


def probe_of(measures: Iterable[Measure], probe: Probe = Probe()) -> Probe:
    """Return the statistics that measures read, and those of a probe."""
    return functools.reduce(merged, (measure.asks for measure in measures), probe)
