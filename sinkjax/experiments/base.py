"""What a recipe is: from a config to sweeps or trainings, and from their stores to a section. This module imports no JAX.

A recipe is a module with two functions and the names of its stores. `jobs` says what to run on a given model, without weights,
or `lessons` which models to train and measure, so that a plan can be made from it; `section` turns stored results into numbers,
figures and sentences, without the model, so that a page can be rebuilt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from sinkjax.errors import SinkjaxError

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from sinkjax.checkpoints.model import Model
    from sinkjax.edits.edit import Edit
    from sinkjax.experiments.summary import Row
    from sinkjax.model.config import Config
    from sinkjax.probes.probe import Probe
    from sinkjax.train.config import Training
    from sinkjax.train.trained import Trained


NO_EDIT = "no edit"


@dataclass(frozen=True)
class Arm:
    """One edit of a study, and its part in it.

    group: the kind of arm ("no edit", "single layer", ...); the first arm of a job is what the others are compared with. place:
    where it stands on its group's axis (e.g. its layer), or None. budget: what a control must match (e.g. how many layers are
    edited), or None without controls.
    """

    edit: Edit
    group: str
    place: int | None = None
    budget: int | None = None


def unedited() -> tuple[Arm, ...]:
    """The arms of a study that only measures."""
    from sinkjax.edits.edit import compose

    return (Arm(compose(label=NO_EDIT), NO_EDIT),)


@dataclass(frozen=True)
class Inputs:
    """What a job runs on.

    kind: "text", the study's passages; "random", token ids drawn evenly from the vocabulary but for special tokens; "repeat", one
    such token all along a prompt. bos: what stands before each prompt, by default the study's `bos`.
    """

    kind: Literal["text", "random", "repeat"] = "text"
    bos: str | int | None = None


TEXT = Inputs()


@dataclass(frozen=True)
class Batch:
    """Prompts: tokens int32 [B, T], lengths int32 [B], and what is stored about them with every result."""

    tokens: NDArray
    lengths: NDArray
    study: Mapping[str, Any]


@dataclass(frozen=True)
class Job:
    """A sweep: its name (the store's too), its arms, what is measured, on how many prompts and on which.

    prepare: gives the arms of a study whose edits hold values that only the loaded model can give (donors from another run,
    neurons chosen by their weights); `arms` then are stand-ins of the same number, labels and kinds, from which a plan is made.
    """

    name: str
    arms: tuple[Arm, ...]
    probe: Probe
    prompts: int
    inputs: Inputs = Inputs()
    prepare: Callable[[Model, Batch], tuple[Arm, ...]] | None = None

    @property
    def edits(self) -> list[Edit]:
        """The edits, as `sinkjax.sweep` takes them."""
        return [arm.edit for arm in self.arms]


@dataclass(frozen=True)
class Calculation:
    """Numbers that no sweep of edits gives: its name (the store's too), and the function that computes them.

    compute: the model and a batch of `prompts` prompts to a labelled dataset of arrays. It is written whole or not at all, so a
    calculation that was interrupted starts again.
    """

    name: str
    compute: Callable[[Model, Batch], xarray.Dataset]
    prompts: int
    inputs: Inputs = Inputs()


@dataclass(frozen=True)
class Lesson:
    """Models to be trained and then measured: its name (that of the trainer's folder, and of the store).

    training: what is trained, in how many runs. architecture: of each of its models, for a plan. measure: all finished runs to a
    labelled dataset of arrays, which is written whole or not at all; a training that was interrupted goes on from its last
    checkpoint. so_far: what the folder of a training that is not finished tells (None: nothing yet); where all lessons have it, a
    page can be made at any moment. wanted: whether a run trains it; one that is not wanted is shown if it is there.
    """

    name: str
    training: Training
    architecture: Config
    measure: Callable[[Trained], xarray.Dataset]
    so_far: Callable[[Path], xarray.Dataset | None] | None = None
    wanted: bool = True


@dataclass(frozen=True)
class Drawing:
    """A figure, the name of its files, and what it shows and how to read it. svg, png: the figure, rendered once."""

    name: str
    figure: Figure
    caption: str

    @cached_property
    def svg(self) -> bytes:
        return self._render("svg")

    @cached_property
    def png(self) -> bytes:
        return self._render("png")

    def _render(self, kind: str) -> bytes:
        from sinkjax.report.figures.style import render

        return render(self.figure, kind)


@dataclass(frozen=True)
class View:
    """Maps of one quantity that the reader of a page steps through, one shown at a time, on a colour scale common to all.

    name: unique on the page. values: float[*choices, row, column], at least 0, NaN where there is nothing. choices: what the
    reader chooses, name -> labels, in the order of the leading axes; a choice "prompt" chooses the tokens too. tokens: text of
    each position, one list for each prompt. Columns are positions; rows are too (row_tokens), or they count from 0, upwards.
    quantity: what a colour means, with its unit. log: whether the colour scale is logarithmic. row_note: said after row_title.
    """

    name: str
    caption: str
    quantity: str
    values: NDArray
    choices: Mapping[str, Sequence[str]]
    tokens: Sequence[Sequence[str]]
    row_title: str
    column_title: str
    row_tokens: bool = True
    log: bool = False
    row_note: str = ""

    def __post_init__(self) -> None:
        sizes = tuple(len(labels) for labels in self.choices.values())
        if self.values.shape[:-2] != sizes:
            raise SinkjaxError(f"the view {self.name} has values of shape {self.values.shape}, but choices of {sizes}")


@dataclass(frozen=True)
class Sample:
    """What a model writes after a prompt, under an edit."""

    prompt: str
    edit: str
    text: str


@dataclass(frozen=True)
class Claim:
    """A statement of a paper, and what was found here.

    statement: with its source (paper, figure or section). verdict: made from the numbers by a rule that `evidence` states.
    evidence: numbers with intervals, in words. paper: the paper's own number, on its own model, "" if it gives none.
    """

    statement: str
    verdict: Literal["confirmed", "not confirmed", "not applicable"]
    evidence: str
    paper: str = ""


@dataclass(frozen=True)
class Section:
    """What an experiment found.

    findings: plain sentences made from the numbers. rows: the summary, one for each arm and measure. featured: labels of the
    arms that the short table shows. notes: what the numbers mean. provenance: name -> value. claims: the paper's statements, each
    with its verdict. views: maps to step through. samples: texts that the model goes on to write. subject: what an arm is. over:
    what its means and intervals are over.
    """

    experiment: str
    title: str
    claim: str
    findings: tuple[str, ...]
    rows: tuple[Row, ...]
    featured: tuple[str, ...]
    drawings: tuple[Drawing, ...]
    notes: tuple[str, ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)
    claims: tuple[Claim, ...] = ()
    views: tuple[View, ...] = ()
    samples: tuple[Sample, ...] = ()
    subject: str = "edit"
    over: str = "prompts"


class Recipe(Protocol):
    """What the module of a recipe on a given model holds. STORES: the names of the jobs whose stores `section` reads.

    A recipe may name further jobs in EXTRAS, without which a folder is finished too: maps and texts
    (`experiments/illustrations.py`), the identity edit (`experiments/identity.py`), and what its `section` reads where it is.
    """

    STORES: tuple[str, ...]

    def jobs(self, config: Any, architecture: Config) -> tuple[Job | Calculation, ...]:
        """The sweeps and calculations of a study. Errors: an architecture that lacks what the study needs."""

    def section(self, config: Any, stores: Mapping[str, xarray.Dataset]) -> Section:
        """Numbers, figures and findings from the finished stores, by the names of their jobs."""


class Course(Protocol):
    """What the module of a recipe that trains its own models holds.

    `section` reads the stores of all its lessons; where these have `so_far`, of those that are there.
    """

    def lessons(self, config: Any) -> tuple[Lesson, ...]:
        """The trainings of a study."""

    def section(self, config: Any, stores: Mapping[str, xarray.Dataset]) -> Section:
        """Numbers, figures and findings from the finished stores, by the names of their lessons."""
