"""Settings that studies share. A study's own settings are a dataclass over one of these, with a docstring for each field.

They contain everything that determines the numbers, and nothing else: the results folder, the device and its memory limit are
command options. A field's default is written only here; the files in `configs/` list the fields that a study sets.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import tyro

from sinkjax.analysis.estimates import Absent
from sinkjax.checkpoints.settings import OnModel, Settings
from sinkjax.config_files import documents
from sinkjax.config_files.checks import at_least, last_seed, refuse, share
from sinkjax.data.corpora import Choice
from sinkjax.data.reading import Division
from sinkjax.errors import SinkjaxError
from sinkjax.model.names import Dtype

COUNTS = ("controls", "control_prompts")
UNTRAINED = "untrained:"  # before the name of a model with random weights


@dataclass(frozen=True, kw_only=True)
class OnText(OnModel):
    """Settings of a study on a given model and on text."""

    text: str = "auto"
    """"auto", "wikitext", "packaged", "chats", or a file or a folder: plain text (.txt, .md, .raw, ...) or records (.jsonl,
    .json, .csv, .tsv, .parquet, .arrow), also .gz of these"""
    split: Choice = "auto"
    """which documents to read: of your own text all of them (auto); of a default text the half reserved for verdicts (auto or
    confirm), not the half on which rules were chosen (explore)"""
    prompts: int = 64
    """passages of text"""
    length: int = 64
    """tokens per passage, including the BOS"""
    bos: Literal["auto", "model", "tokenizer", "none"] | int = "auto"
    """prefix of each passage: the one that the model was trained with, if any (auto); the BOS that its files name (model); its
    tokenizer's prefix; nothing; or a token id"""
    seed: int = 0
    """seed of the choice of passages, the random controls and the bootstrap"""
    field: str = field(default="text", metadata=documents.LATER)
    """name of the field with the text in a file of records; each record is a document"""
    documents: Division = dataclasses.field(default="auto", metadata=documents.LATER)
    """unit that counts as a document in plain text: a file, a line, an article below a heading like = Title =, or auto: a
    file in a folder; in a single file an article, else a line"""

    def __post_init__(self) -> None:
        super().__post_init__()
        for stated in dataclasses.fields(self)[len(dataclasses.fields(OnText)) :]:
            name, value = stated.name, getattr(self, stated.name)
            if isinstance(value, int) and not isinstance(value, bool):
                at_least(self, **{name: 1 if name in COUNTS else 0})
            if isinstance(value, tuple):
                refuse(bool(stated.default) and not value, f"{name} is empty")
                for entry in value:
                    negative = isinstance(entry, int) and entry < 0
                    refuse(negative, f"{name} has {entry}; layers, positions and counts start at 0")
            if name == "eps":
                share(self, "eps")
        self.check()


@dataclass(frozen=True, kw_only=True)
class Trains(Settings):
    """Settings of every study that trains its own models."""

    seeds: int = 8
    """runs per model, each with its own initialisation and data"""
    dtype: Dtype = "float32"
    """precision of the parameters and activations"""
    seed: int = 0
    """seed of the first run (later runs count up), of the evaluation data and of the bootstrap"""
    only: tuple[str, ...] = field(default=(), metadata=documents.CHOICE)
    """names of the trainings to run, all if none; others are shown if they are finished"""

    def __post_init__(self) -> None:
        documents.typed(self)
        at_least(self, seeds=1, seed=0)
        last_seed(self)
        self.check()


@dataclass(frozen=True, kw_only=True)
class Judged(OnText):
    """Settings of a study whose claims are judged."""

    control_prompts: int = 16
    """number of prompts, from the first, for controls, numbers of the unedited model and the untrained twin"""
    twin: bool = True
    """whether the claims are also measured on the same architecture with random weights"""


@dataclass(frozen=True, kw_only=True)
class Controlled(Judged):
    """Settings of a study with random controls."""

    controls: int = 20
    """random controls for each condition that a claim is about"""


@dataclass(frozen=True, kw_only=True)
class Sinks(OnText):
    """Settings of a study that counts sinks."""

    eps: float = 0.3
    """attention that a key must receive on average to be a head's sink (Gu et al. 2025)"""


@dataclass(frozen=True, kw_only=True)
class Mapped(OnText):
    """Settings of a study that shows attention maps."""

    map_layers: tuple[int, ...] = ()
    """layers whose attention maps are drawn; if none, an early, a middle and a late one"""


def own_bos(config: Any) -> int:
    """Return the BOS token id from the config, else from the model's files, without reading weights.

    Raises:
        Absent: Neither names one.
    """
    from sinkjax.checkpoints.load import open_checkpoint

    if isinstance(config.bos, int):
        return int(config.bos)
    source = (config.tokenizer,) if config.tokenizer else (config.model, config.revision, config.ignore_keys)
    tokenizer = open_checkpoint(*source).tokenizer
    if tokenizer is None or tokenizer.bos is None:
        raise Absent(f"the files of {config.tokenizer or config.model} name no BOS token; give a token id as bos")
    return int(tokenizer.bos)


def has_twin(settings: Any) -> bool:
    """Return whether a study is also measured on its model's untrained twin."""
    return bool(getattr(settings, "twin", False)) and not str(settings.model).startswith(UNTRAINED)


# Commands that run several studies: suites and series.


@dataclass(frozen=True, kw_only=True)
class All(OnModel):
    """Every study of one paper, or of all papers, on one model, in one report."""

    family: str = ""
    """family of studies, the first part of their names ("kiya"); "" for every family"""
    order: tuple[str, ...] = ()
    """studies that come first, in this order; the others follow by name"""
    text: str | None = None
    """text, split, prompts, length, BOS and seed of all studies, overriding their own configs"""
    split: Choice | None = None
    """which documents to read: all of your own text, or half of a default text (auto); see any study"""
    prompts: int | None = None
    """passages of text"""
    length: int | None = None
    """tokens of each passage"""
    bos: Literal["auto", "model", "tokenizer", "none"] | int | None = None
    """prefix of each passage: "auto" for the one that the model was trained with"""
    seed: int | None = None
    """seed of the choice of passages, the random controls and the bootstrap"""


@dataclass(frozen=True, kw_only=True)
class Series:
    """One study on every checkpoint of a series, or on several models, in one report."""

    study: tyro.conf.Suppress[str]
    """its name"""
    checkpoints: tyro.conf.Suppress[str | None] = None
    """a folder of checkpoints, such as a training's"""
    models: tyro.conf.Suppress[tuple[str, ...]] = ()
    """or several models, each like `model` of a study"""
    revisions: tyro.conf.Suppress[tuple[str, ...]] = ()
    """branches, tags or commits of the single hub id in `models`"""
    dtype: Dtype = "float32"
    """precision of the parameters and activations"""
    settings: tyro.conf.Suppress[Mapping[str, object]] = field(default_factory=dict)
    """fields of the study that differ from its shipped config"""

    @property
    def summary(self) -> str:
        """A one-line description of the series."""
        return f"{self.study} on {f'{len(self.models)} models' if self.checkpoints is None else self.checkpoints}"

    def __post_init__(self) -> None:
        documents.typed(self)
        if (self.checkpoints is None) == (not self.models):
            raise SinkjaxError("a series is either a folder of checkpoints or a list of models")
        if self.revisions and len(self.models) != 1:
            raise SinkjaxError(f"revisions needs exactly one hub id in models, not {len(self.models)}")
        for name in ("model", "revision", "dtype"):
            refuse(name in self.settings, f"settings must not set {name!r}, which the series sets itself")


@dataclass(frozen=True, kw_only=True)
class AllTrained:
    """Every study of one lab that trains its own models, in one report."""

    family: str = ""
    """lab of studies, the first part of their names ("trigger"); "" for every lab"""
    dtype: Dtype = "float32"
    """precision of the parameters and activations"""
    seeds: int | None = None
    """runs, steps and seed of all studies, overriding their own configs"""
    steps: int | None = None
    """maximum training steps per run"""
    seed: int | None = None
    """seed of the first run, of the evaluation data and of the bootstrap"""

    def __post_init__(self) -> None:
        documents.typed(self)
        at_least(self, seeds=1, steps=1, seed=0)
