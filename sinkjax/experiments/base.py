"""What a recipe is: from a config to sweeps or trainings, and from their stores to a section. This module imports no JAX.

A recipe is a module with two functions and the names of its stores. `jobs` says what to run on a given model, without weights,
or `lessons` which models to train and measure, so that a plan can be made from it; `section` turns stored results into numbers,
figures and sentences, without the model, so that a page can be rebuilt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from sinkjax.report.section import Drawing as Drawing
from sinkjax.report.section import Sample as Sample
from sinkjax.report.section import View as View
from sinkjax.studies.study import TEXT as TEXT
from sinkjax.studies.study import Batch as Batch
from sinkjax.studies.study import Calculation as Calculation
from sinkjax.studies.study import Inputs as Inputs
from sinkjax.studies.study import SweepSpec, TrainingSpec

Lesson = TrainingSpec

if TYPE_CHECKING:
    import xarray

    from sinkjax.edits.edit import Edit
    from sinkjax.experiments.summary import Row
    from sinkjax.model.config import Config


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

    @property
    def label(self) -> str:
        return self.edit.label

    @property
    def series(self) -> str:
        return self.group

    @property
    def x(self) -> int | None:
        return self.place


def unedited() -> tuple[Arm, ...]:
    """The arms of a study that only measures."""
    from sinkjax.edits.edit import compose

    return (Arm(compose(label=NO_EDIT), NO_EDIT),)


class Job(SweepSpec):
    """A sweep: its name (the store's too), its arms, what is measured, on how many prompts and on which.

    prepare: gives the arms of a study whose edits hold values that only the loaded model can give (donors from another run,
    neurons chosen by their weights); `arms` then are stand-ins of the same number, labels and kinds, from which a plan is made.
    """

    @property
    def arms(self) -> Any:
        return self.conditions


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

    def jobs(self, config: Any, architecture: Config) -> Any:
        """The sweeps and calculations of a study. Errors: an architecture that lacks what the study needs."""

    def section(self, config: Any, stores: Mapping[str, xarray.Dataset]) -> Section:
        """Numbers, figures and findings from the finished stores, by the names of their jobs."""


class Course(Protocol):
    """What the module of a recipe that trains its own models holds.

    `section` reads the stores of all its lessons; where these have `so_far`, of those that are there.
    """

    def lessons(self, config: Any) -> Any:
        """The trainings of a study."""

    def section(self, config: Any, stores: Mapping[str, xarray.Dataset]) -> Section:
        """Numbers, figures and findings from the finished stores, by the names of their lessons."""
