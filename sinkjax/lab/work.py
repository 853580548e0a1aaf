"""What a study runs besides edits, and on which prompts: calculations, trainings, batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import xarray
    from numpy.typing import NDArray

    from sinkjax.checkpoints.model import Model
    from sinkjax.model.config import Config
    from sinkjax.probes.probe import Probe
    from sinkjax.train.config import Training
    from sinkjax.train.trained import Trained

Kind = Literal["text", "joined", "random", "repeat"]


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
        values: Values of the run (`sinkjax.studies.values`).
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
