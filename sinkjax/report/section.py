"""Data model of one study's report: figures, interactive maps, texts, and the `Section` that contains them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sinkjax.errors import SinkjaxError

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from sinkjax.analysis.summary import Row
    from sinkjax.analysis.verdicts import Verdict


@dataclass(frozen=True)
class Drawing:
    """A figure, the name of its files, and a caption that explains it. svg, png: the figure, rendered once."""

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
    quantity: the colour's meaning, with its unit. log: whether the colour scale is logarithmic. row_note: said after row_title.
    start: choice -> the label that is shown first; the first of all where it is not named.
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
    start: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sizes = tuple(len(labels) for labels in self.choices.values())
        if self.values.shape[:-2] != sizes:
            raise SinkjaxError(f"the view {self.name} has values of shape {self.values.shape}, but choices of {sizes}")


@dataclass(frozen=True)
class Sample:
    """A model's continuation of a prompt, under an edit."""

    prompt: str
    edit: str
    text: str


@dataclass(frozen=True)
class Section:
    """What a study found.

    study: its name. question: the papers' findings, in short. findings: further numbers in sentences. rows: the summary, one for
    each condition and measure. featured: labels of the conditions in the short table.
    notes: how the numbers were made. provenance: name -> value. views: maps to step through. samples: texts that the model goes
    on to write. subject: the noun for a condition. over: the sampling unit of means and intervals. verdicts: judged claims.
    """

    study: str
    title: str
    question: str
    findings: tuple[str, ...]
    rows: tuple[Row, ...]
    featured: tuple[str, ...]
    drawings: tuple[Drawing, ...]
    notes: tuple[str, ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)
    views: tuple[View, ...] = ()
    samples: tuple[Sample, ...] = ()
    subject: str = "edit"
    over: str = "prompts"
    verdicts: tuple[Verdict, ...] = ()


@dataclass(frozen=True)
class Report:
    """What several studies found. skipped: study -> why it has no section, in one sentence."""

    title: str
    sections: tuple[Section, ...]
    skipped: Mapping[str, str]
