"""What a study runs, and on which prompts: sweeps with their conditions, calculations, trainings, batches."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from sinkjax.edits.edit import Edit, compose
from sinkjax.errors import SinkjaxError
from sinkjax.probes.probe import Probe
from sinkjax.study.measures import Measure
from sinkjax.study.places import ALL, SEVERAL, Case, Place

if TYPE_CHECKING:
    import xarray
    from numpy.typing import NDArray

    from sinkjax.checkpoints.model import Model
    from sinkjax.model.config import Config
    from sinkjax.train.config import Training
    from sinkjax.train.trained import Trained

Kind = Literal["text", "joined", "random", "repeat"]
NO_EDIT, CONTROL = "no edit", "control"
LISTED = 6  # conditions that an error names
UNEDITED = compose(label=NO_EDIT)
Control = Callable[[np.random.Generator, Case], Edit]  # one random edit of the size of a condition's


@dataclass(frozen=True)
class Inputs:
    """A kind of prompts.

    Attributes:
        kind: "text", the study's passages; "joined", documents one after another, for prompts longer than a passage; "random",
            token ids drawn evenly from the vocabulary without special tokens; "repeat", one such token throughout a prompt.
        bos: Prefix of each prompt; "own" for the model's BOS; None for the study's `bos`.
    """

    kind: Kind = "text"
    bos: str | int | None = None


TEXT = Inputs()


@dataclass(frozen=True)
class Batch:
    """Prompts: tokens int32 [B, T], lengths int32 [B], and the facts stored about them with every result.

    Attributes:
        measured: Statistics of unedited models on them, by model, number of prompts and probe, which `baseline.Unedited` fills.
        values: Values of the run (`sinkjax.study.folder`).
        memory: Bytes of a device that a sweep of them may use; None: as for `sinkjax.sweep`.
    """

    tokens: NDArray[Any]
    lengths: NDArray[Any]
    study: Mapping[str, object]
    measured: dict[tuple[Model, int | None, Probe], xarray.Dataset] = field(default_factory=dict, repr=False, compare=False)
    values: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    memory: int | None = field(default=None, repr=False, compare=False)

    def blocks(self, size: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Tokens and lengths of `size` prompts at a time, for computations that do not fit in memory at once."""
        for start in range(0, len(self.lengths), size):
            yield self.tokens[start : start + size], self.lengths[start : start + size]


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


@dataclass(frozen=True)
class Calculation:
    """Numbers that no sweep of edits gives. Its store is written whole or not at all.

    Attributes:
        name: Name, also of its store.
        compute: Computes a labelled dataset from the model and a batch of `prompts` prompts.
        variables: Variables of the dataset. A store without one of them is of another version.
        prompts: Number of prompts.
        inputs: Kind of prompts.
        twin: Whether it runs on the model's untrained twin.
        beside: Bytes that it needs beside the models, from config and dtype.
        declared: Whatever else decides the numbers, as JSON.
        optional: Whether a folder is finished without it.
    """

    name: str
    compute: Callable[[Model, Batch], xarray.Dataset]
    variables: tuple[str, ...]
    prompts: int
    inputs: Inputs = TEXT
    twin: bool = False
    beside: Callable[[Config, str], int] = lambda config, dtype: 0
    declared: object = None
    optional: bool = False


@dataclass(frozen=True)
class TrainingSpec:
    """Models to be trained and then measured.

    Attributes:
        name: Name, also of the trainer's folder and of the store.
        training: The model and the number of runs.
        architecture: Architecture of its models, for a plan.
        measure: Measures all finished runs, as a labelled dataset that is written whole or not at all. An interrupted training
            resumes from its last checkpoint.
        so_far: Reads the results of an unfinished training from its folder (None: nothing yet). If all trainings of a study
            have it, a page can be made at any moment.
        wanted: Whether a run trains it; a finished one is shown anyway.
    """

    name: str
    training: Training
    architecture: Config
    measure: Callable[[Trained], xarray.Dataset]
    so_far: Callable[[Path], xarray.Dataset | None] | None = None
    wanted: bool = True
