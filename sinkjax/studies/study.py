"""What runs and reports a study needs of it: sweeps, measures, verdicts and figures. This module imports no JAX.

`sinkjax.lab.lower` makes it of a study, which is a function of a lab.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
UNTRAINED = "untrained:"  # before the name of a model with random weights
DOCUMENTS = "documents"
Results = Any  # `sinkjax.studies.results.Results`, which is made from a study


@dataclass(frozen=True)
class Condition:
    """One labelled edit of a sweep.

    The first condition of a sweep is the baseline that the others are compared with.

    Attributes:
        edit: The edit; its label is the condition's label.
        series: The conditions that it belongs with, e.g. "one layer".
        x: Its place in its series (a layer, a count, a strength, a position), or None.
        budget: The size that a random control must match (e.g. how many layers are edited), or None without controls.
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
        label: The condition's label.

    Returns:
        The condition; its series is its label.

    Raises:
        SinkjaxError: The label is not text, or contains control characters.
    """
    from sinkjax.edits.edit import compose

    return Condition(compose(label=label), label)


@dataclass(frozen=True)
class Inputs:
    """The inputs of a sweep.

    kind: "text", the study's passages; "joined", documents one after another, for prompts longer than a passage; "random", token
    ids drawn evenly from the vocabulary without special tokens; "repeat", one such token throughout a prompt. bos: the prefix
    of each prompt, by default the study's `bos`.
    """

    kind: Literal["text", "joined", "random", "repeat"] = "text"
    bos: str | int | None = None


TEXT = Inputs()


@dataclass(frozen=True)
class Batch:
    """Prompts: tokens int32 [B, T], lengths int32 [B], and the facts stored about them with every result.

    measured: statistics of unedited models on them, by model, number of prompts and probe, which `known.Unedited` fills while
    a run makes its sweeps. values: those of the run (`sinkjax.lab.values`).
    """

    tokens: NDArray
    lengths: NDArray
    study: Mapping[str, object]
    measured: dict[tuple[Model, int | None, Probe], xarray.Dataset] = field(default_factory=dict, repr=False, compare=False)
    values: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def blocks(self, size: int) -> Iterator[tuple[NDArray, NDArray]]:
        """Tokens and lengths of `size` prompts at a time, for computations that do not fit in memory at once."""
        for start in range(0, len(self.lengths), size):
            yield self.tokens[start : start + size], self.lengths[start : start + size]


@dataclass(frozen=True)
class Measure:
    """A number for each condition and prompt, made from the statistics of a sweep.

    Attributes:
        name: The column's heading, with the unit.
        of: Dataset of a sweep -> float[condition, prompt].
        baseline: Dataset -> float[condition, prompt], the reference of each condition where it is not the first
            condition's number (e.g. because each is read at a position of its own).
        unit: Unit of an effect, in sentences.
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
        blank: (config, architecture, prompts) -> placeholders of the same structure and shapes, for planning.
        compute: (config, model, batch) -> the values.
        declared: How the values and the edits are declared, as JSON; a store that was made by another declaration is compared
            with edits that hold the values.
        kept: Whether some of them are kept in the run; `blank` then takes these, by name, as a fourth argument.
    """

    blank: Callable[..., object]
    compute: Callable[..., dict[str, object]]
    declared: object = None
    kept: bool = False


def nothing(*arguments: object) -> tuple[()]:
    """The declaration of a study without measures, figures, notes, ..."""
    return ()


@dataclass(frozen=True)
class Sweep:
    """Conditions that run on the same prompts, and their measures.

    Attributes:
        name: The name of its store.
        conditions: (config, architecture) -> conditions, the baseline first; with `values`, (config, architecture, values).
        measures: The summary has one row of each per condition.
        probe: The probe; None: the study's.
        prompts: How many prompts; None: as many as the study has.
        inputs: Config -> its inputs; None: the study's passages. It raises `Absent` where there are none, and a store that
            says why then stands in place of the sweep's.
        controls: Sweeps of random edits that the effects are ranked among, by budget; by default they run on the inputs of
            their sweep.
        values: Values in its edits that need the loaded model, or None.
        optional: Whether a folder is finished without it.
        prefix: Prefix of its rows' labels, where several sweeps have the same conditions.
        series: The series of its rows; "": each condition's own.
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
    calculation that was interrupted starts again. variables: the dataset's variables; a store without one is of another version.
    twin: whether it runs on the model's untrained twin. beside: config and dtype to the bytes that it needs beside the models.
    passes: how many tokens it generates one after the other, for each of which all parameters are read. declared: what else than
    model and prompts decides the numbers, as JSON.
    """

    name: str
    compute: Callable[[Model, Batch], xarray.Dataset]
    variables: tuple[str, ...]
    prompts: int
    inputs: Inputs = TEXT
    twin: bool = False
    beside: Callable[[Config, str], int] = lambda config, dtype: 0
    passes: int = 0
    declared: object = None


@dataclass(frozen=True)
class SweepSpec:
    """A sweep of one study on one architecture, ready to be planned and run.

    prepare: returns the conditions if their edits hold values of the loaded model; `conditions` then are placeholders of the same
    number, labels and kinds, for planning. declared: how these values are declared, see `Values`. planned: the placeholders for
    values that are kept in a run.
    """

    name: str
    conditions: tuple[Condition, ...]
    probe: Probe
    prompts: int
    inputs: Inputs = TEXT
    prepare: Callable[..., tuple[Condition, ...]] | None = None
    twin: bool = False
    declared: object = None
    planned: Callable[[Mapping[str, object]], tuple[Condition, ...]] | None = None

    @property
    def edits(self) -> list[Edit]:
        """The edits, as `sinkjax.sweep` takes them."""
        return [condition.edit for condition in self.conditions]


@dataclass(frozen=True)
class TrainingSpec:
    """Models to be trained and then measured: its name (also of the trainer's folder and of the store).

    training: the model and the number of runs. architecture: architecture of its models, for a plan. measure: all finished runs
    to a labelled dataset of arrays, which is written whole or not at all; an interrupted training resumes from its last
    checkpoint. so_far: results of an unfinished training, read from its folder (None: nothing yet); where all trainings of a
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

    labels: the conditions' labels. sweeps: names of the sweeps that have them; the maps of each have their own store, and the
    continuations use the prompts of the last one that runs. layers: the maps' layers. start: tokens that a prompt must
    have before the model continues it (an edit may name later positions than usual).
    """

    labels: tuple[str, ...]
    sweeps: tuple[str, ...]
    layers: tuple[int, ...] = ()
    start: int = 0


@dataclass(frozen=True, kw_only=True)
class Study:
    """A study on a given model, or (with `trainings`) one that trains models of its own.

    Functions of a declaration take (config, architecture) unless it is said otherwise; `architecture` has the plain fields of a
    model's `Config` (`layers`, `heads`, `width`, ...), when a page is rebuilt as when a model is run.

    Attributes:
        name: "paper/study".
        config: The dataclass of its settings.
        title: Title of its section; like `question` it may name fields of the config in braces.
        question: The papers' findings.
        probe: Config -> its probe.
        trainings: Config -> models to train and measure, in place of sweeps; `architecture` is empty then.
        sweeps: Its sweeps and calculations; the first one is the main one.
        featured: Results -> labels of the short table.
        figures: Functions of the results.
        noop: The sweep of the study's no-op edits, which must change nothing; it may return None.
        shown: What maps and continuations show.
        notes: (config, results) -> how to read the numbers, beside the standard notes.
        rows: Results -> further rows of the summary.
        check: Raises `SinkjaxError` where a config does not fit a model.
        provenance: Results -> how the numbers were made, in place of the usual facts.
        status: Results -> sentences on runs that are missing or unfinished.
        over: The sampling unit of means and intervals. "documents" is replaced by the stores' unit: documents, passages
            clustered by document, or prompts that are not text (`Results.over`). "model" where all numbers are properties of its
            weights.
        subject: The noun for a condition.
        verdicts: Results -> the claims of a study that is a value, judged by the one rule.
    """

    name: str
    config: type
    title: str
    question: str
    probe: Callable[..., Probe] | None = None
    trainings: Callable[..., Sequence[TrainingSpec]] | None = None
    sweeps: Callable[..., Sequence[Sweep | Calculation]] = nothing
    featured: Callable[[Results], Sequence[str]] | None = None
    figures: Callable[..., Iterable[Callable[[Results], Drawing | list[Drawing] | None]]] = nothing
    noop: Callable[..., Sweep | None] | None = None
    shown: Callable[..., Shown] | None = None
    notes: Callable[..., Sequence[str]] = nothing
    rows: Callable[[Results], Iterable[Row]] | None = None
    check: Callable[..., object] = nothing
    provenance: Callable[[Results], Mapping[str, object]] | None = None
    status: Callable[[Results], Iterable[str]] = nothing
    over: str = DOCUMENTS
    subject: str = "edit"
    verdicts: Callable[[Results], Sequence[Verdict]] | None = None
