"""Settings of commands that run several studies: suites and series."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import tyro

from sinkjax.checkpoints.settings import OnModel
from sinkjax.config_files.checks import at_least, refuse, typed
from sinkjax.data.corpora import Choice
from sinkjax.errors import SinkjaxError
from sinkjax.model.names import Dtype


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
    """documents that are read: all of a text of your own, and half of any other (auto); see any study"""
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
