"""Conditions: the labelled edits of a sweep, and choices among them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sinkjax.edits.edit import Edit, compose
from sinkjax.errors import SinkjaxError
from sinkjax.lab.measures import Measure
from sinkjax.lab.places import ALL, SEVERAL, Case, Place
from sinkjax.lab.work import Kind
from sinkjax.probes.probe import Probe

NO_EDIT, CONTROL = "no edit", "control"
LISTED = 6  # conditions that an error names
UNEDITED = compose(label=NO_EDIT)
Control = Callable[[np.random.Generator, Case], Edit]  # one random edit of the size of a condition's


@dataclass(frozen=True)
class Point:
    """A condition of a sweep, or a control of one.

    Attributes:
        edit: The edit; its label is the condition's label, unique in a sweep.
        series: The conditions that it belongs with, such as "one layer".
        x: Its place in its series (a layer, a count, a strength, a position), or None.
        case: Its place and axes; None for the unedited model.
        draw: Number of a control; -1 for a condition.
    """

    edit: Edit
    series: str
    x: Any = None
    case: Case | None = None
    draw: int = -1

    @property
    def label(self) -> str:
        """The label of its edit."""
        return self.edit.label


@dataclass(frozen=True, eq=False)
class Sweep:
    """A sweep of a study: its edits on one kind of prompt.

    Attributes:
        name: Name, also of its store.
        edits: Case -> edit, in order. The baseline comes before them.
        measures: The columns of its summary.
        control: Draws a random edit of the size of a condition's; None without controls.
        bos: Token before each prompt; "own" for the model's BOS; None for the study's setting.
        inputs: Kind of prompts (`Inputs`).
        prompts: Number of prompts; None for the study's setting.
        title: Prefix of its row labels, where several sweeps have the same conditions.
        layers: Number of layers of the model.
        probe: Statistics to keep besides those that its measures read.
        baseline: What the conditions are compared with: no edit.
    """

    name: str
    edits: Mapping[Case, Edit]
    measures: tuple[Measure, ...] = ()
    control: Control | None = None
    bos: str | int | None = None
    inputs: Kind = "text"
    prompts: int | None = None
    title: str = ""
    layers: int = 1
    probe: Probe = Probe()
    baseline: Edit = UNEDITED

    def __getitem__(self, chosen: Place | Case) -> Where:
        """Choose the conditions in a place, at the given values of some axes."""
        return Where(self, chosen.place, chosen.axes) if isinstance(chosen, Case) else Where(self, chosen)

    @property
    def every(self) -> Where:
        """All conditions."""
        return Where(self)

    def at(self, **fixed: object) -> Where:
        """Choose the conditions with the given values of some axes, in every place."""
        return Where(self, None, tuple(fixed.items()))

    @property
    def axes(self) -> tuple[str, ...]:
        """The names of its axes."""
        return tuple(dict.fromkeys(name for case in self.edits for name, _ in case.axes))

    def label(self, case: Case) -> str:
        """Return the label of a condition: its place, or its axes and, unless all are in all layers, its place."""
        axes = ", ".join(f"{name} {_shown(value)}" for name, value in case.axes)
        if not axes:
            return case.place.label
        return axes if all(one.place == ALL for one in self.edits) else f"{axes} in {case.place.label}"

    def row_label(self, point: Point) -> str:
        """Return the label of a condition's rows in the summary."""
        return f"{self.title}: {point.label}" if self.title else point.label

    def points(self) -> list[Point]:
        """Return its conditions, the baseline first."""
        found = [Point(self.baseline, self.baseline.label)]
        for case, edit in self.edits.items():
            place = case.place
            x = case.axes[-1][1] if case.axes else self.layers - 1 if place == ALL else place.x
            series = SEVERAL if case.axes and place.grouped else place.series or place.label
            found.append(Point(edit.named(self.label(case)), series, x, case=case))
        return found


def _shown(value: object) -> str:
    """Format an axis value; strings that are not words are quoted, because spaces and line breaks are invisible."""
    quoted = isinstance(value, str) and not all(re.fullmatch(r"[\w-]+", part) for part in value.split(" "))
    return f"{value:g}" if isinstance(value, float) else repr(value) if quoted else str(value)


class Where(NamedTuple):
    """Conditions of a sweep: in one place or in all (None), with some axes fixed."""

    sweep: Sweep
    place: Place | None = None
    fixed: tuple[tuple[str, Any], ...] = ()

    @property
    def cases(self) -> list[Case | None]:
        """The chosen conditions; None, the unedited model, of a sweep without edits.

        Raises:
            SinkjaxError: The sweep has none of them.
        """
        if not self.sweep.edits and self.place is None:
            return [None]
        found: list[Case | None] = [
            case for case in self.sweep.edits if self.place in (None, case.place) and {*self.fixed} <= {*case.axes}
        ]
        if not found:
            wanted = ", ".join([*(f"{name} {value}" for name, value in self.fixed), *([self.place.label] if self.place else [])])
            labels = [self.sweep.label(case) for case in self.sweep.edits]
            some = ", ".join(labels[:LISTED]) + ", ..." * (len(labels) > LISTED)
            raise SinkjaxError(f"no condition of {self.sweep.name} is {wanted or 'edited'}; it has {some or 'none'}")
        return found

    @property
    def text(self) -> str:
        """A description for readers."""
        sweep, title = self.sweep, self.sweep.title
        if len(cases := self.cases) == 1:
            label = "" if cases[0] is None else sweep.label(cases[0])
            return ": ".join(filter(None, (title, label))) or sweep.name
        place = self.place.label if self.place else ""
        return ", ".join(filter(None, (title, *(f"{name} {value}" for name, value in self.fixed), place))) or sweep.name
