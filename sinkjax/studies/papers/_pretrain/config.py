"""The config of a study of pretraining: rows, each a training with a few fields changed. This module imports no JAX."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import tyro

from sinkjax.config_files import documents
from sinkjax.config_files.checks import above, at_least
from sinkjax.errors import SinkjaxError, one_of, unknown
from sinkjax.studies.config import Trains
from sinkjax.studies.papers._pretrain.sizes import SIZES, Size, SizeName

# Measure -> its name with its unit. Sink_k counts tokens from 1, as the papers do; in arrays and files they count from 0.
MEASURES = {
    "sink": "Sink_1 (%)",
    "sink_2": "Sink_2 (%)",
    "sink_3": "Sink_3 (%)",
    "sink_4": "Sink_4 (%)",
    "sink_5": "Sink_5 (%)",
    "sink_bias": "Sink_* (%)",
    "loss": "valid loss (nats)",
    "train_loss": "train loss (nats)",
    "perplexity": "perplexity",
    "strongest": "weight on token 1, strongest head",
    "first_share": "share of token 1, mean over heads",
    "column_sum": "weight on token 1, mean over heads",
    "written": "norm of what token 1 writes over the head's output, mean over heads",
    "norm_ratio": "norm of token 1 over others, largest over depths",
    "value_ratio": "norm of token 1's value over others', smallest over layers",
    "largest": "largest activation, mean over depths",
    "effective_rank": "effective rank, mean over layers",
    "disparity": "dimension disparity, mean over layers",
    "gradient_norm": "norm of the gradient",
    "steps_to": "steps to the first row's last loss",
}
SINK = 1.0  # % of heads: with more of them a row has a sink
SHOWN = ("sink", "loss", "strongest", "norm_ratio", "largest")
NAME = re.compile(r"[a-z0-9][a-z0-9.-]*")


@dataclass(frozen=True, kw_only=True, eq=False)
class RowSpec:
    """A row of a table.

    name: of its training's folder. label: its title, by default the name. changes: fields of the training that differ from those
    of the size. times: factors on numbers of the size (for a window, on the context). paper: measure -> the paper's number, or
    its words. sizes: those that have this row, by default all.
    """

    name: str
    label: str = ""
    changes: Mapping[str, Any] = field(default_factory=dict)
    times: Mapping[str, Any] = field(default_factory=dict)
    paper: Mapping[str, Any] = field(default_factory=dict)
    sizes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise SinkjaxError(f"a row's name has small letters, digits, dots and dashes, not {self.name!r}")
        for measure, number in self.paper.items():
            if measure not in MEASURES:
                raise unknown("measure", measure, MEASURES)
            if isinstance(number, bool) or not isinstance(number, int | float | str):
                raise SinkjaxError(f"paper: {measure} must be a number or a few words, not {documents.describe(number)}")
        for size in self.sizes:
            one_of("sizes", size, SIZES)

    @property
    def title(self) -> str:
        """The label, or else the name."""
        return self.label or self.name


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A claim of a paper: a measure is larger in the row `more` than in the row `less`, in its direction and not in ours.

    Either may be a number instead. within: the two differ by less than this, in the unit of the measure, whichever is larger.
    sinks: a row that must have a sink (`SINK`) for the claim to apply. half: a row of which `less` must have less than half, seed
    by seed, beside what else is said. source: table, figure or section, after the study's `source`. paper: the paper's own
    numbers, in words.
    """

    statement: str
    more: str | float
    less: str | float
    measure: str = "sink"
    within: float | None = None
    sinks: str = ""
    half: str = ""
    source: str = ""
    paper: str = ""

    def __post_init__(self) -> None:
        one_of("measure", self.measure, MEASURES)
        if self.within is not None:
            above(self, within=0)
        if not isinstance(self.more, str) and not isinstance(self.less, str):
            raise SinkjaxError("a claim compares two rows, or a row and a number")
        if self.half and not isinstance(self.less, str):
            raise SinkjaxError(f"less must be a row where it has less than half of {self.half}, not {self.less}")


@dataclass(frozen=True, kw_only=True)
class Ablation(Trains):
    """Language models trained from scratch, one thing changed at a time, beside the numbers of a paper.

    The file holds the rows (`RowSpec`) and the paper's claims about them (`Statement`).
    """

    size: SizeName = "mini"
    """size of models and trainings (`sinkjax/studies/papers/_pretrain/sizes.py`)"""
    seeds: int = 1
    """runs of each row, each with its own initialisation and order of the data"""
    steps: int | None = None
    """training steps of a run; by default those of the size"""
    text: str | None = None
    """training text: "packaged", a file, a folder or the hub id of a data set; by default that of the size"""
    micro_batch: int | None = None
    """sequences whose gradient is computed at a time, by default as for the size"""
    mesh: tuple[int, int] | None = field(default=None, metadata=documents.CHOICE)
    """devices of one run: the number that share the sequences, and the number that share the matrices; by default one"""
    only: tuple[str, ...] = field(default=(), metadata=documents.CHOICE)
    """names of the rows to train, by default all; others are shown if they are finished"""
    name: tyro.conf.Suppress[str]
    """of the study"""
    title: tyro.conf.Suppress[str] = field(metadata=documents.CHOICE)
    """what is compared, in a few words"""
    claim: tyro.conf.Suppress[str] = field(metadata=documents.CHOICE)
    """what the paper found, in a sentence, with its source"""
    changes: tyro.conf.Suppress[Mapping[str, Any]] = field(default_factory=dict)
    """fields of the trainings of all rows, over those of the size"""
    rows: tyro.conf.Suppress[tuple[Mapping[str, Any], ...]]
    """the rows (`RowSpec`); the others are compared with the first one"""
    source: tyro.conf.Suppress[str] = field(default="", metadata=documents.CHOICE)
    """paper that makes the claims, such as "Gu et al. 2025"; "" if they are ours or each names its own"""
    claims: tyro.conf.Suppress[tuple[Mapping[str, Any], ...]] = field(default=(), metadata=documents.CHOICE)
    """the paper's claims about them (`Statement`)"""
    measures: tyro.conf.Suppress[tuple[str, ...]] = field(default=(), metadata=documents.CHOICE)
    """further measures of the short table"""
    notes: tyro.conf.Suppress[tuple[str, ...]] = field(default=(), metadata=documents.CHOICE)
    """notes for readers of this study"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, steps=1, micro_batch=1)
        one_of("size", self.size, SIZES)
        names = [row.name for row in self.row_specs]
        if not names or len(set(names)) < len(names):
            raise SinkjaxError(f"rows must be at least one, each with a name of its own, not {names}")
        for measure in self.measures:
            one_of("measures", measure, MEASURES)
        for name in self.only:
            if name not in [row.name for row in self.here]:
                raise unknown("row", name, [row.name for row in self.here])
        for statement in self.statements:
            for row in (statement.more, statement.less, *filter(None, (statement.sinks, statement.half))):
                if isinstance(row, str) and row not in names:
                    raise unknown("row", row, names)

    @property
    def summary(self) -> str:
        """What is compared, in a line."""
        return f"Pretraining: {self.title}"

    @cached_property
    def row_specs(self) -> tuple[RowSpec, ...]:
        """All rows. Errors: an invalid one."""
        return tuple(documents.build(RowSpec, row, f"rows[{number}]") for number, row in enumerate(self.rows))

    @cached_property
    def statements(self) -> tuple[Statement, ...]:
        """All claims. Errors: an invalid one."""
        return tuple(documents.build(Statement, claim, f"claims[{number}]") for number, claim in enumerate(self.claims))

    @property
    def here(self) -> tuple[RowSpec, ...]:
        """The rows of this size."""
        return tuple(row for row in self.row_specs if not row.sizes or self.size in row.sizes)

    @property
    def scale(self) -> Size:
        """The size by its name."""
        return SIZES[self.size]

    @property
    def shown(self) -> tuple[str, ...]:
        """The measures of the short table: the usual ones, the study's own, and those for which the paper has numbers."""
        papers = {measure for row in self.row_specs for measure in row.paper}
        return tuple(name for name in MEASURES if name in (*SHOWN, *self.measures) or name in papers)
