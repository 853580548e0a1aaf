"""Claims, trainings and figures of a study."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sinkjax.analysis.summary import Row
from sinkjax.report.section import Drawing
from sinkjax.study.contrasts import Contrast
from sinkjax.study.measures import Measure
from sinkjax.study.numbers import Reading, Stored
from sinkjax.study.places import Case
from sinkjax.study.premises import Premise, Test
from sinkjax.study.took import Check
from sinkjax.study.work import Sweep, TrainingSpec, Where

Rows = Callable[[Stored], list[Row]]
Kind = Literal["claim", "identity", "described"]


@dataclass(frozen=True, eq=False)
class Claim:
    """A claim about one figure, table or theorem of a paper.

    Attributes:
        name: Name, under which its statement stands in the study's config file.
        source: Paper and figure, table or section.
        of: A contrast to judge, the test of an identity, or exact rows.
        kind: Which of these it is.
        sign: 1 if the paper says that the contrast is above 0, -1 if below.
        stays: Whether the paper says that nothing changes.
        premise: The paper's own premise.
        took: The manipulation check of its edit, or why the edit is its own check; "" if nothing is edited.
        beside: Further readouts, printed without a word.
        split: The share of the whole that a token as strong as a competitor gets, if that stays visible (`Lab.claim`).
        read: What it reads.
        possible: Whether its premise can hold in this architecture.
    """

    name: str
    source: str
    of: Contrast | Test | Rows
    kind: Kind = "claim"
    sign: int = 1
    stays: bool = False
    premise: Premise | None = None
    took: Check | str = ""
    beside: tuple[Contrast, ...] = ()
    split: float | None = None
    read: tuple[Reading, ...] = ()
    possible: bool = True

    def cases(self, name: str, how: str = "value") -> set[Case | None]:
        """Return the conditions of a sweep that it reads in this way."""
        return {one.case for one in self.read if one.name == name and one.how == how}


@dataclass(frozen=True, eq=False)
class TrainedModels:
    """Models that a study trains.

    Attributes:
        name: Name, also of its store.
        spec: What is trained and measured; None for a row of a table that these settings do not have.
        label: Label for readers.
        paper: Measure's name -> the paper's own number or words.
        compared: Whether its numbers are compared with the first training's.
    """

    name: str
    spec: TrainingSpec | None
    label: str
    paper: Mapping[str, float | str] = field(default_factory=dict)
    compared: bool = False


@dataclass(frozen=True, eq=False)
class Figure:
    """A figure: the function that draws it, and its arguments after the numbers."""

    draw: Callable[..., Drawing | list[Drawing] | None]
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]

    def __call__(self, read: Stored) -> Drawing | list[Drawing] | None:
        return self.draw(read, *self.arguments, **self.options)

    def measures(self, sweep: Sweep) -> list[Measure]:
        """Return the measures among its arguments, if it draws a sweep; a function of layers gives one."""
        given = [*_flat([self.arguments, self.options])]
        if not any(one is sweep or (isinstance(one, Where) and one.sweep is sweep) for one in given):
            return []
        made = [one(layers=None) for one in given if callable(one) and not isinstance(one, Measure)]
        return [one for one in given if isinstance(one, Measure)] + made


def _flat(given: Iterable[Any]) -> Iterator[Any]:
    """Yield the contents of lists, tuples and tables, all the way down."""
    for one in given:
        if isinstance(one, Mapping):
            yield from _flat(one.values())
        elif isinstance(one, list | tuple) and not isinstance(one, Where):
            yield from _flat(one)
        else:
            yield one
