"""Settings that studies share. A study's own settings are a dataclass over one of these, with a docstring for each field."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from sinkjax.analysis.estimates import Absent
from sinkjax.config_files.checks import at_least, share
from sinkjax.errors import SinkjaxError
from sinkjax.studies.config import StudyConfig

COUNTS = ("controls", "control_prompts")


@dataclass(frozen=True, kw_only=True)
class OnText(StudyConfig):
    """Settings of a study on a given model and on text."""

    def __post_init__(self) -> None:
        super().__post_init__()
        shared = {field.name for field in dataclasses.fields(StudyConfig)}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in shared:
                continue
            if isinstance(value, int) and not isinstance(value, bool):
                at_least(self, **{field.name: 1 if field.name in COUNTS else 0})
            if isinstance(value, tuple):
                _check_list(field.name, value, filled=bool(field.default))
            if field.name == "eps":
                share(self, "eps")


def _check_list(name: str, value: tuple[object, ...], filled: bool) -> None:
    """Refuse a list that is empty but must not be, or that has negative layers, positions or counts."""
    if filled and not value:
        raise SinkjaxError(f"{name} is empty")
    for entry in value:
        if isinstance(entry, int) and entry < 0:
            raise SinkjaxError(f"{name} has {entry}; layers, positions and counts start at 0")


@dataclass(frozen=True, kw_only=True)
class Judged(OnText):
    """Settings of a study whose claims are judged."""

    control_prompts: int = 16
    """number of prompts, from the first, for controls, known numbers and the untrained twin"""
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
