"""The work of a study: sweeps with their conditions, calculations, trainings, and batches of prompts."""

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
from sinkjax.study.layers import ALL, Layers
from sinkjax.study.measures import Measure

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
Control = Callable[[np.random.Generator, Layers], Edit]  # one random edit of the size of a condition's


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


@dataclass(frozen=True, eq=False)
class Batch:
    """Prompts: tokens int32 [B, T], lengths int32 [B], and the facts stored about them with every result.

    Attributes:
        measured: Statistics of unedited models on them, by model, number of prompts and probe, which `lab.Unedited` fills.
        values: Values of the run (`sinkjax.study.folder`).
        memory: Bytes of a device that a sweep of them may use; None: as for `sinkjax.sweep`.
    """

    tokens: NDArray[Any]
    lengths: NDArray[Any]
    study: Mapping[str, object]
    measured: dict[tuple[Model, int | None, Probe], xarray.Dataset] = field(default_factory=dict, repr=False)
    values: dict[str, Any] = field(default_factory=dict, repr=False)
    memory: int | None = field(default=None, repr=False)

    def blocks(self, size: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Yield tokens and lengths of `size` prompts at a time, for computations that do not fit in memory at once."""
        for start in range(0, len(self.lengths), size):
            yield self.tokens[start : start + size], self.lengths[start : start + size]


@dataclass(frozen=True)
class Condition:
    """A condition of a sweep, or a control of one.

    Attributes:
        edit: The edit; its label is the condition's label, unique in a sweep.
        case: Its layers, with its value on each axis; None for the unedited model.
        draw: Number of a control; -1 for a condition.
    """

    edit: Edit
    case: Layers | None = None
    draw: int = -1

    @property
    def label(self) -> str:
        """The label of its edit."""
        return self.edit.label

    @property
    def series(self) -> str:
        """The conditions that it belongs with, such as "one layer"."""
        return self.label if self.case is None else self.case.series or self.case.label


@dataclass(frozen=True, eq=False)
class Sweep:
    """A sweep of a study: its edits on one kind of prompt.

    Attributes:
        name: Name of the sweep and of its store.
        edits: Layers (with axes, if any) -> edit, in order, after the baseline.
        measures: The columns of its summary.
        control: Function that draws a random edit of the same size as a condition's; None without controls.
        bos: Token before each prompt; "own" for the model's BOS; None for the study's setting.
        inputs: Kind of prompts (`Inputs`).
        prompts: Number of prompts; None for the study's setting.
        title: Prefix of its row labels, if several sweeps have the same conditions.
        probe: Statistics to keep in addition to those that its measures need.
        baseline: The condition with which all others are compared: no edit.
    """

    name: str
    edits: Mapping[Layers, Edit]
    measures: tuple[Measure, ...] = ()
    control: Control | None = None
    bos: str | int | None = None
    inputs: Kind = "text"
    prompts: int | None = None
    title: str = ""
    probe: Probe = Probe()
    baseline: Edit = UNEDITED

    def __getitem__(self, chosen: Layers) -> Selection:
        """Select the conditions in some layers, at the given values of some axes."""
        return Selection(self, chosen.label, chosen.axes)

    @property
    def every(self) -> Selection:
        """All conditions."""
        return Selection(self)

    def at(self, **fixed: object) -> Selection:
        """Select the conditions with the given values of some axes, in all layers that the sweep edits."""
        return Selection(self, None, tuple(fixed.items()))

    def label(self, case: Layers) -> str:
        """Return the label of a condition: its layers, or its axes and, unless all are in all layers, its layers."""
        axes = ", ".join(f"{name} {_shown(value)}" for name, value in case.axes)
        if not axes:
            return case.label
        return axes if all(other.label == ALL.label for other in self.edits) else f"{axes} in {case.label}"

    def row_label(self, condition: Condition) -> str:
        """Return the label of a condition's rows in the summary."""
        return f"{self.title}: {condition.label}" if self.title else condition.label

    def conditions(self) -> list[Condition]:
        """Return its conditions, the baseline first."""
        return [Condition(self.baseline), *(Condition(edit.named(self.label(case)), case) for case, edit in self.edits.items())]


def _shown(value: object) -> str:
    """Format an axis value; strings that are not words are quoted, because spaces and line breaks are invisible."""
    quoted = isinstance(value, str) and not all(re.fullmatch(r"[\w-]+", part) for part in value.split(" "))
    return f"{value:g}" if isinstance(value, float) else repr(value) if quoted else str(value)


class Selection(NamedTuple):
    """Conditions of a sweep: in the layers of one label or in all (None), with some axes fixed."""

    sweep: Sweep
    label: str | None = None
    fixed: tuple[tuple[str, Any], ...] = ()

    @property
    def cases(self) -> list[Layers | None]:
        """The layers and axes of the selected conditions; for a sweep without edits None, the unedited model.

        Raises:
            SinkjaxError: The sweep has no such condition.
        """
        if not self.sweep.edits and self.label is None:
            return [None]
        edits, (name, label, fixed) = self.sweep.edits, (self.sweep.name, *self[1:])
        selected: list[Layers | None] = [case for case in edits if label in (None, case.label) and {*fixed} <= {*case.axes}]
        if not selected:
            wanted = ", ".join([*(f"{axis} {value}" for axis, value in fixed), *([label] if label else [])])
            labels = [self.sweep.label(case) for case in edits]
            some = ", ".join(labels[:LISTED]) + ", ..." * (len(labels) > LISTED)
            raise SinkjaxError(f"no condition of {name} is {wanted or 'edited'}; it has {some or 'none'}")
        return selected

    @property
    def text(self) -> str:
        """A description for readers."""
        sweep, cases = self.sweep, self.cases
        if len(cases) == 1:
            label = "" if cases[0] is None else sweep.label(cases[0])
            return ": ".join(filter(None, (sweep.title, label))) or sweep.name
        axes = (f"{name} {value}" for name, value in self.fixed)
        return ", ".join(filter(None, (sweep.title, *axes, self.label))) or sweep.name


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
        beside: Bytes that it needs besides the models, from config and dtype.
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
