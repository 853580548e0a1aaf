"""Data model of one study's report: figures, interactive maps, texts, and the `Section` that contains them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sinkjax.analysis.summary import Row
from sinkjax.analysis.verdicts import Verdict
from sinkjax.report.figures.style import render
from sinkjax.viewing.maps import KeptMaps, Maps

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Drawing:
    """A figure, the name of its files, a caption, and the model and text that it shows. svg, png: the figure, rendered once.

    half: whether it shares a line of the page with the next one, where the screen is wide enough.
    """

    name: str
    figure: Figure
    caption: str
    source: str = ""
    half: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "caption", " ".join(self.caption.split()))  # the source may wrap it over several lines

    @cached_property
    def svg(self) -> bytes:
        return render(self.figure, "svg")

    @cached_property
    def png(self) -> bytes:
        return render(self.figure, "png")


@dataclass(frozen=True)
class Sample:
    """A model's continuation of a prompt, under an edit."""

    prompt: str
    edit: str
    text: str


@dataclass(frozen=True)
class Block:
    """A table or a program with a heading. lines: cells of each row, in the order of `columns`. code: the program."""

    title: str
    said: str = ""
    columns: tuple[str, ...] = ()
    lines: tuple[tuple[str, ...], ...] = ()
    code: str = ""


@dataclass(frozen=True)
class Section:
    """The results of a study.

    study: its name. question: the papers' findings, in short. findings: additional numbers in sentences. rows: the summary, one
    per condition and measure. featured: labels of the conditions in the short table.
    notes: how the numbers were made. provenance: name -> value. views: interactive maps. samples: continuations of prompts.
    blocks: tables and programs. subject: the noun for a condition. over: the sampling unit of means and intervals.
    verdicts: judged claims.
    """

    study: str
    title: str
    question: str
    findings: tuple[str, ...]
    rows: tuple[Row, ...] = field(repr=False)
    featured: tuple[str, ...]
    drawings: tuple[Drawing, ...] = field(repr=False)
    notes: tuple[str, ...] = field(default=(), repr=False)
    provenance: Mapping[str, Any] = field(default_factory=dict, repr=False)
    views: tuple[Maps | KeptMaps, ...] = field(default=(), repr=False)
    samples: tuple[Sample, ...] = field(default=(), repr=False)
    blocks: tuple[Block, ...] = field(default=(), repr=False)
    subject: str = "edit"
    over: str = "prompts"
    verdicts: tuple[Verdict, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Report:
    """Results of several studies. skipped: study -> the reason why it has no section, in one sentence."""

    title: str
    sections: tuple[Section, ...]
    skipped: Mapping[str, str]
