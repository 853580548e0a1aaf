"""What a study is: a declaration of what is changed, measured and claimed. This module imports no JAX.

A study says which conditions there are, what is measured on them, what the papers claim and by which rule a claim is judged, and
which figures are drawn. Everything else, from stores and resumption to the page, is done by the framework (`run`, `assemble`).
`docs/add-a-study.md` builds one in forty lines.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import xarray
    from numpy.typing import NDArray

    from sinkjax.analysis.summary import Row
    from sinkjax.analysis.verdicts import Verdict
    from sinkjax.checkpoints.model import Model
    from sinkjax.edits.edit import Edit
    from sinkjax.model.config import Config
    from sinkjax.probes.probe import Probe
    from sinkjax.report.section import Drawing
    from sinkjax.train.config import Training
    from sinkjax.train.trained import Trained

NO_EDIT, CONTROL = "no edit", "control"
DOCUMENTS = "documents"
Results = Any  # `sinkjax.studies.results.Results`, which is made from a study
KINDS_OF_PROMPTS = {
    "text": "natural text",
    "joined": "joined documents",
    "random": "random tokens",
    "repeat": "one token repeated",
}


@dataclass(frozen=True)
class Condition:
    """One labelled edit of a sweep.

    The first condition of a sweep is the baseline, with which the others are compared.

    Attributes:
        edit: The edit; its label is that of the condition.
        series: The conditions that it belongs with, e.g. "one layer".
        x: Where it stands in its series (a layer, a count, a strength, a position), or None.
        budget: What a random control must match (e.g. how many layers are edited), or None without controls.
    """

    edit: Edit
    series: str
    x: Any = None
    budget: Hashable = None

    @property
    def label(self) -> str:
        """The label of its edit, unique in a sweep."""
        return self.edit.label


def no_edit(label: str = NO_EDIT) -> Condition:
    """The usual baseline: a condition without an edit.

    Args:
        label: Of the condition.

    Returns:
        The condition; its series is its label.

    Raises:
        SinkjaxError: The label is no text, or holds control characters.
    """
    from sinkjax.edits.edit import compose

    return Condition(compose(label=label), label)


@dataclass(frozen=True)
class Inputs:
    """What a sweep runs on.

    kind: "text", the study's passages; "joined", documents one after another, for prompts longer than a passage; "random", token
    ids drawn evenly from the vocabulary but for special tokens; "repeat", one such token all along a prompt. bos: what stands
    before each prompt, by default the study's `bos`.
    """

    kind: Literal["text", "joined", "random", "repeat"] = "text"
    bos: str | int | None = None

    @property
    def name(self) -> str:
        """The kind in words."""
        return KINDS_OF_PROMPTS[self.kind]


TEXT = Inputs()


@dataclass(frozen=True)
class Batch:
    """Prompts: tokens int32 [B, T], lengths int32 [B], and what is stored about them with every result."""

    tokens: NDArray
    lengths: NDArray
    study: Mapping[str, object]


@dataclass(frozen=True)
class Measure:
    """A number for each condition and prompt, made from the statistics of a sweep.

    Attributes:
        name: With its unit, as a column is headed.
        of: Dataset of a sweep -> float[condition, prompt].
        baseline: Dataset -> float[condition, prompt], what each condition is compared with where that is not the first
            condition's number (e.g. because each is read at a position of its own).
        unit: Of an effect, in sentences.
        note: The definition, for the page.
    """

    name: str
    of: Callable[[xarray.Dataset], NDArray]
    baseline: Callable[[xarray.Dataset], NDArray] | None = None
    unit: str = ""
    note: str = ""


@dataclass(frozen=True)
class Values:
    """Arrays that the edits of a sweep hold and only the loaded model can give: donors from another run, chosen heads, ...

    Attributes:
        blank: (config, architecture, prompts) -> stand-ins of the same structure and shapes, from which a plan is made.
        compute: (config, model, batch) -> the values.
    """

    blank: Callable[..., object]
    compute: Callable[..., dict[str, object]]


def nothing(*arguments: object) -> tuple[()]:
    """What a study without measures, figures, notes, ... declares."""
    return ()


@dataclass(frozen=True)
class Sweep:
    """Conditions that run on the same prompts, and what is measured on them.

    Attributes:
        name: Of its store.
        conditions: (config, architecture) -> conditions, the baseline first; with `values`, (config, architecture, values).
        measures: Of which the summary has a row for each condition.
        probe: What is measured; None: the study's.
        prompts: How many prompts; None: as many as the study has.
        inputs: Config -> what it runs on; None: the study's passages. It raises `Absent` where there are none, and a store that
            says why then stands in place of the sweep's.
        controls: Sweeps of random edits among which the effects are ranked, by budget; by default they run on the inputs of
            their sweep.
        values: What its edits hold that only the loaded model can give, or None.
        optional: Whether a folder is finished without it.
        prefix: What the labels of its rows begin with, where several sweeps have the same conditions.
        series: Of its rows; "": that of each condition.
        twin: Whether it runs on the model's untrained twin, the same architecture with random weights; it has no rows.
    """

    name: str
    conditions: Callable[..., Iterable[Condition]]
    measures: Sequence[Measure] = ()
    probe: Probe | None = None
    prompts: int | None = None
    inputs: Callable[..., Inputs] | None = None
    controls: tuple[Sweep, ...] = ()
    values: Values | None = None
    optional: bool = False
    prefix: str = ""
    series: str = ""
    twin: bool = False

    def row_label(self, condition: Condition) -> str:
        """The label of a condition's rows."""
        return f"{self.prefix}: {condition.label}" if self.prefix else condition.label


@dataclass(frozen=True)
class Calculation:
    """Numbers that no sweep of edits gives: its name (the store's too), and the function that computes them.

    compute: the model and a batch of `prompts` prompts to a labelled dataset of arrays. It is written whole or not at all, so a
    calculation that was interrupted starts again. variables: those of the dataset; a store without one is of another version.
    twin: whether it runs on the model's untrained twin.
    """

    name: str
    compute: Callable[[Model, Batch], xarray.Dataset]
    variables: tuple[str, ...]
    prompts: int
    inputs: Inputs = TEXT
    twin: bool = False


@dataclass(frozen=True)
class SweepSpec:
    """A sweep of one study on one architecture, ready to be planned and run.

    prepare: gives the conditions where their edits hold values of the loaded model; `conditions` then are stand-ins of the same
    number, labels and kinds, from which a plan is made.
    """

    name: str
    conditions: tuple[Condition, ...]
    probe: Probe
    prompts: int
    inputs: Inputs = TEXT
    prepare: Callable[..., tuple[Condition, ...]] | None = None
    twin: bool = False

    @property
    def edits(self) -> list[Edit]:
        """The edits, as `sinkjax.sweep` takes them."""
        return [condition.edit for condition in self.conditions]


@dataclass(frozen=True)
class TrainingSpec:
    """Models to be trained and then measured: its name (that of the trainer's folder, and of the store).

    training: what is trained, in how many runs. architecture: of each of its models, for a plan. measure: all finished runs to a
    labelled dataset of arrays, which is written whole or not at all; a training that was interrupted goes on from its last
    checkpoint. so_far: what can be read from the folder of an unfinished training (None: nothing yet); where all trainings of a
    study have it, a page can be made at any moment. wanted: whether a run trains it; a finished one is shown anyway.
    """

    name: str
    training: Training
    architecture: Config
    measure: Callable[[Trained], xarray.Dataset]
    so_far: Callable[[Path], xarray.Dataset | None] | None = None
    wanted: bool = True


@dataclass(frozen=True)
class Shown:
    """The conditions whose attention maps, activations and continuations a page shows.

    labels: of conditions. sweeps: the names of those that have them; the maps of each are in a store of its own, and the
    continuations are of the prompts of the last one that runs. layers: of the attention maps. start: tokens that a prompt must
    have before the model continues it (an edit may name later positions than usual). prompts: how many are run.
    """

    labels: tuple[str, ...]
    sweeps: tuple[str, ...]
    layers: tuple[int, ...] = ()
    start: int = 0
    prompts: int = 3


@dataclass(frozen=True, kw_only=True)
class Study:
    """A study on a given model, or (with `trainings`) one that trains models of its own.

    Functions of a declaration take (config, architecture) unless it is said otherwise; `architecture` has the plain fields of a
    model's `Config` (`layers`, `heads`, `width`, ...), when a page is rebuilt as when a model is run.

    Attributes:
        name: "paper/study".
        config: The dataclass of its settings.
        title: Of its section; like `question` it may name fields of the config in braces.
        question: What the papers say.
        needs: Parts that a model must have (`studies/requirements.py`).
        probe: Config -> what is measured.
        trainings: Config -> what is trained and measured, in place of sweeps; `architecture` is empty then.
        sweeps: Its sweeps and calculations; the first one is the main one.
        featured: Results -> labels of the short table.
        figures: Functions of the results.
        noop_inputs: Config -> what the no-op edits run on; None: the study's passages.
        noop: What it does, in words -> an edit of the study's kind that must change nothing; takes `noop_values` as a third
            argument where its edits hold some.
        shown: What maps and continuations show.
        notes: (config, results) -> how to read the numbers, beside the standard notes.
        rows: Results -> further rows of the summary.
        check: Raises `SinkjaxError` where a config does not fit a model.
        provenance: Results -> how the numbers were made, in place of the usual facts.
        status: Results -> sentences on runs that are missing or unfinished.
        over: What means and intervals are over. "documents" is replaced by what the stores hold: documents, passages
            clustered by document, or prompts that are not text (`Results.over`). "model" where all numbers are properties of its
            weights.
        subject: What a condition is.
        verdicts: Results -> the claims of a study that is a value, judged by the one rule.
    """

    name: str
    config: type
    title: str
    question: str
    needs: tuple[str, ...] = ()
    probe: Callable[..., Probe] | None = None
    trainings: Callable[..., Sequence[TrainingSpec]] | None = None
    sweeps: Callable[..., Sequence[Sweep | Calculation]] = nothing
    featured: Callable[[Results], Sequence[str]] | None = None
    figures: Callable[..., Iterable[Callable[[Results], Drawing | list[Drawing] | None]]] = nothing
    noop: Callable[..., Mapping[str, Edit]] | None = None
    noop_values: Values | None = None
    noop_inputs: Callable[..., Inputs] | None = None
    shown: Callable[..., Shown] | None = None
    notes: Callable[..., Sequence[str]] = nothing
    rows: Callable[[Results], Iterable[Row]] | None = None
    check: Callable[..., object] = nothing
    provenance: Callable[[Results], Mapping[str, object]] | None = None
    status: Callable[[Results], Iterable[str]] = nothing
    over: str = DOCUMENTS
    subject: str = "edit"
    verdicts: Callable[[Results], Sequence[Verdict]] | None = None
