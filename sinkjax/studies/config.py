"""Typed configs that studies share. This module does not import JAX, so that help and errors are immediate.

A config contains everything that determines the numbers, and nothing else: the results folder, the device and its memory limit
are command options. A field's default is written only here; the files in `configs/` list the fields that a study sets.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import tyro

from sinkjax.config_files import documents
from sinkjax.config_files.checks import at_least, last_seed, refuse, typed
from sinkjax.data.corpora import Split
from sinkjax.data.reading import Division
from sinkjax.errors import SinkjaxError
from sinkjax.model.names import Dtype


class Settings:
    """Settings of a study. Each study declares its own, so that their names are checked when it is read."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


@dataclass(frozen=True, kw_only=True)
class OnModel(Settings):
    """A given model, and how to load it."""

    model: str = "smollm2-135m"
    """preset, Hugging Face folder or hub id, or .gguf file; after "untrained:", that architecture with random weights"""
    revision: str | None = None
    """branch, tag or commit of a hub id"""
    ignore_keys: tuple[str, ...] = field(default=(), metadata=documents.LATER)
    """keys of the model's config.json or metadata, or tensors, to ignore because no number depends on them"""
    tokenizer: str | None = field(default=None, metadata=documents.LATER)
    """folder, .gguf file or hub id of a tokenizer, if the model's files have none"""
    dtype: Dtype = "float32"
    """precision of the parameters and activations"""

    def __post_init__(self) -> None:
        typed(self)
        at_least(self, prompts=1, length=2, seed=0)


@dataclass(frozen=True, kw_only=True)
class StudyConfig(OnModel):
    """Settings of every study on a trained model and natural text."""

    text: str = "auto"
    """"auto", "wikitext", "packaged", "chats", or a file or a folder: plain text (.txt, .md, .raw, ...) or records (.jsonl,
    .json, .csv, .tsv, .parquet, .arrow), also .gz of these"""
    split: Split = "confirm"
    """documents that are read: rules were chosen on explore; verdicts are made on confirm"""
    prompts: int = 64
    """passages of text"""
    length: int = 64
    """tokens per passage, including the BOS"""
    bos: Literal["model", "tokenizer", "none"] | int = "none"
    """prefix of each passage: the model's own BOS, its tokenizer's prefix, nothing, or a token id"""
    seed: int = 0
    """seed of the choice of passages, the random controls and the bootstrap"""
    field: str = field(default="text", metadata=documents.LATER)
    """name of the field with the text in a file of records; each record is a document"""
    documents: Division = dataclasses.field(default="auto", metadata=documents.LATER)
    """what is a document in plain text: a file, a line, an article below a heading like = Title =, or auto: a file in a folder;
    in a single file an article, else a line"""


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
        typed(self)
        at_least(self, seeds=1, seed=0)
        last_seed(self)


@dataclass(frozen=True, kw_only=True)
class All(OnModel):
    """Every study of one paper, or of all papers, on one model, in one report."""

    family: str = ""
    """family of studies, the first part of their names ("kiya"); "" for every family"""
    text: str | None = None
    """text, split, prompts, length, BOS and seed of all studies, overriding their own configs"""
    split: Split | None = None
    """documents that are read: rules were chosen on explore; verdicts are made on confirm"""
    prompts: int | None = None
    """passages of text"""
    length: int | None = None
    """tokens of each passage"""
    bos: Literal["model", "tokenizer", "none"] | int | None = None
    """prefix of each passage: "model" if the model was trained with its BOS in front"""
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
        typed(self)
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
        typed(self)
        at_least(self, seeds=1, steps=1, seed=0)
