"""The typed configs that experiments share. This module imports no JAX, so that help and errors are immediate.

A config holds all that decides the numbers, and nothing else: where results go, which device runs and how much memory it may use
are options of the command. A field's default is written here and nowhere else; the files in `configs/` say what a study sets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sinkjax.errors import SinkjaxError

Dtype = Literal["float32", "bfloat16", "float16", "float64"]
MIN_QUERIES = 8  # fewer queries say little about a key: such a one is not searched for a sink


@dataclass(frozen=True, kw_only=True)
class StudyConfig:
    """What every experiment on a trained model and natural text has to state."""

    model: str = "smollm2-135m"
    """preset, Hugging Face folder or hub id, or .gguf file; or one of these after "untrained:", for random weights"""
    revision: str | None = None
    """branch, tag or commit of a hub id"""
    dtype: Dtype = "float32"
    """of the parameters and activations"""
    text: str = "auto"
    """"auto", "wikitext", "packaged" or the path of a text with one paragraph a line"""
    prompts: int = 64
    """passages of text"""
    length: int = 64
    """tokens of each passage, BOS included"""
    bos: Literal["model", "none"] | int = "none"
    """what stands before each passage: the model's own BOS, nothing, or a token id"""
    seed: int = 0
    """of the choice of passages, the random controls and the bootstrap"""

    def __post_init__(self) -> None:
        at_least(self, prompts=1, length=2, seed=0)


@dataclass(frozen=True, kw_only=True)
class Controlled(StudyConfig):
    """A study with random controls."""

    controls: int = 20
    """random controls for each budget"""
    control_prompts: int = 8
    """prompts on which the controls are measured, the first of all"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, controls=1, control_prompts=1)


@dataclass(frozen=True, kw_only=True)
class ControlledSinks(Controlled):
    """A study of sinks with random controls."""

    eps: float = 0.3
    """attention that a key must receive on average to be a head's sink (Gu et al. 2025)"""

    def __post_init__(self) -> None:
        super().__post_init__()
        share(self, "eps")


@dataclass(frozen=True, kw_only=True)
class Trains:
    """What every experiment that trains its own models has to state."""

    seeds: int = 8
    """runs of each model, each with an initialisation and data of its own"""
    dtype: Dtype = "float32"
    """of the parameters and activations"""
    seed: int = 0
    """of the first run (the others follow), of what is measured on and of the bootstrap"""

    def __post_init__(self) -> None:
        at_least(self, seeds=1, seed=0)


@dataclass(frozen=True, kw_only=True)
class All:
    """Every experiment of one paper, or of all papers, on one model: one report."""

    family: str = ""
    """whose experiments, as the first part of their names ("kiya"); "" for every family"""
    model: str = "smollm2-135m"
    """preset, Hugging Face folder or hub id, or .gguf file; or one of these after "untrained:" """
    revision: str | None = None
    """branch, tag or commit of a hub id"""
    dtype: Dtype = "float32"
    """of the parameters and activations"""
    text: str | None = None
    """text, prompts, length, BOS and seed of all experiments, instead of those that their own configs state"""
    prompts: int | None = None
    """passages of text"""
    length: int | None = None
    """tokens of each passage"""
    bos: Literal["model", "none"] | int | None = None
    """what stands before each passage: "model" for one that learned with its BOS there"""
    seed: int | None = None
    """of the choice of passages, the random controls and the bootstrap"""

    def __post_init__(self) -> None:
        at_least(self, prompts=1, length=2, seed=0)


@dataclass(frozen=True, kw_only=True)
class AllTrained:
    """Every experiment of one lab that trains its own models: one report."""

    family: str = ""
    """whose experiments, as the first part of their names ("trigger"); "" for every lab"""
    dtype: Dtype = "float32"
    """of the parameters and activations"""
    seeds: int | None = None
    """runs, steps and seed of all experiments, instead of those that their own configs state"""
    steps: int | None = None
    """of a run, unless it is done before"""
    seed: int | None = None
    """of the first run, of what is measured on and of the bootstrap"""

    def __post_init__(self) -> None:
        at_least(self, seeds=1, steps=1, seed=0)


def at_least(config: Any, **bounds: int) -> None:
    """Raise an error that names a field that is no number from its bound on; one that is None has no bound."""
    for name, bound in bounds.items():
        value = getattr(config, name)
        if value is not None and not bound <= value < math.inf:
            raise SinkjaxError(f"{name} must be at least {bound}{', and finite' * (value == math.inf)}, not {value}")


def above(config: Any, **bounds: float) -> None:
    """Raise an error that names a field that is no number above its bound."""
    for name, bound in bounds.items():
        value = getattr(config, name)
        if not bound < value < math.inf:
            raise SinkjaxError(f"{name} must be above {bound}{', and finite' * (value == math.inf)}, not {value}")


def only_for(config: Any, name: str, here: bool, what: str) -> None:
    """Raise an error that names a field that has another value than its default where nothing reads it."""
    if not here and getattr(config, name) != type(config).__dataclass_fields__[name].default:
        raise SinkjaxError(f"{name} is for {what}")


def below(config: Any, name: str, limit: str) -> None:
    """Raise unless the field `name` is below the field `limit`."""
    if getattr(config, name) >= getattr(config, limit):
        raise SinkjaxError(f"{name} must be below {limit} ({getattr(config, limit)}), not {getattr(config, name)}")


def share(config: Any, name: str) -> None:
    """Raise unless a field lies strictly between 0 and 1."""
    if not 0 < getattr(config, name) < 1:
        raise SinkjaxError(f"{name} must lie between 0 and 1, not {getattr(config, name)}")


def each_once(config: Any, name: str) -> None:
    """Raise unless a field lists something, and nothing twice."""
    listed = getattr(config, name)
    if not listed or len(set(listed)) < len(listed):
        raise SinkjaxError(f"{name} must name at least one, and each of them once, not {list(listed)}")


def layers_from_0(config: Any, name: str) -> None:
    """Raise an error that names a negative layer of a field."""
    for layer in getattr(config, name):
        if layer < 0:
            raise SinkjaxError(f"{name} has the negative layer {layer}; layers count from 0")


def layers_below(config: Any, name: str, L: int) -> None:
    """Raise an error that names a layer of a field that a model of `L` layers lacks."""
    for layer in getattr(config, name):
        if layer >= L:
            raise SinkjaxError(f"{name} has layer {layer}, but the model has {L}, 0 to {L - 1}")


def seen(config: Any, place: int, what: str) -> None:
    """Raise unless at least `MIN_QUERIES` queries of a whole prompt see a place."""
    if place + MIN_QUERIES > config.length:
        raise SinkjaxError(f"{what} {place} is seen by fewer than {MIN_QUERIES} of {config.length} queries")


def refuse(wrong: bool, why: str) -> None:
    """Raise an error that says why a value is refused, if it is wrong."""
    if wrong:
        raise SinkjaxError(why)


def without_repeats(name: str, values: Sequence[Any]) -> None:
    """Raise an error that names a field which lists a value twice."""
    if len(set(values)) < len(values):
        raise SinkjaxError(f"{name} names a value twice: {', '.join(map(str, values))}")


def positions_seen(config: Any, last: int, queries: str) -> None:
    """Raise unless `positions` are different ones from 1 to `last`, which enough queries see, and `shown` is one of them."""
    each_once(config, "positions")
    for place in config.positions:
        refuse(
            not 1 <= place <= last, f"positions has {place}, but must lie in 1 to {last}: a sink needs {MIN_QUERIES} {queries}"
        )
    listed = ", ".join(map(str, config.positions))
    refuse(config.shown not in config.positions, f"shown must be one of positions ({listed}), not {config.shown}")


def drawn_layers(config: Any, L: int) -> tuple[int, ...]:
    """The layers of `config.map_layers`, by default an early, a middle and a late one. Errors: one that the model lacks."""
    if config.map_layers is None:
        return tuple(sorted({0, L // 3, 2 * L // 3}))
    layers_from_0(config, "map_layers")
    layers_below(config, "map_layers", L)
    return tuple(config.map_layers)


Study = StudyConfig
