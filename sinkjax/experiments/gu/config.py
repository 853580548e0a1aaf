"""The configs of the experiments of Gu et al. 2025 on trained models. This module imports no JAX."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tyro

from sinkjax.config_files.checks import at_least, share
from sinkjax.errors import SinkjaxError
from sinkjax.studies.config import Study

SHORTEST = 8  # tokens of a prompt: its first half then holds some other positions to compare the first one with
REPORTED: dict[str, Any] = {"model": str, "inputs": str, "eps": (int, float), "rate": (int, float), "source": str}
INPUTS = ("text", "random", "repeat")


@dataclass(frozen=True, kw_only=True)
class FirstToken(Study):
    """What the studies that set the first token against others have in common."""

    controls: int = 20
    """other positions of the first half of a prompt, drawn at random, among which the first one is ranked"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, controls=1, length=SHORTEST)


@dataclass(frozen=True, kw_only=True)
class SinkRate(FirstToken):
    """The share of heads that sink on the first key of natural text, of random tokens and of one token repeated (Table 1)."""

    prompts: int = 100
    """sequences of each kind"""
    eps: float = 0.3
    """attention that a key must receive on average to be a head's sink"""
    other_eps: tuple[float, ...] = (0.2, 0.8)
    """further thresholds (0.8: Barbero et al. 2025)"""
    published: tyro.conf.Suppress[tuple[Mapping[str, Any], ...]] = ()
    """rates that papers give: model, inputs, eps, rate in per cent, and source"""

    def __post_init__(self) -> None:
        super().__post_init__()
        share(self, "eps")
        for eps in self.other_eps:
            if not 0 < eps < 1 or eps == self.eps:
                raise SinkjaxError(f"other_eps must lie between 0 and 1 and differ from eps, and holds {eps}")
        for entry in self.published:
            self._check(entry)

    def _check(self, entry: Mapping[str, Any]) -> None:
        """Raise unless an entry of `published` is whole."""
        if set(entry) != set(REPORTED) or not all(isinstance(entry[key], kind) for key, kind in REPORTED.items()):
            raise SinkjaxError(f"an entry of published needs {', '.join(REPORTED)} and is {dict(entry)}")
        if entry["inputs"] not in INPUTS:
            raise SinkjaxError(f"the inputs of an entry of published must be one of {', '.join(INPUTS)}, not {entry['inputs']}")


@dataclass(frozen=True, kw_only=True)
class Norms(FirstToken):
    """L2 norms of hidden states, queries, keys and values, the first token against the others."""


@dataclass(frozen=True, kw_only=True)
class Angles(FirstToken):
    """The scores of the first key split into norms and cosines, and how few directions its vectors take."""

    eps: float = 0.3
    """attention that a key must receive on average to be a head's sink"""
    rank: int = 1
    """directions of the other half of the prompts into which keys are projected"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, rank=1, prompts=2)
        share(self, "eps")
        if self.rank > self.prompts // 2:
            raise SinkjaxError(
                f"rank {self.rank} needs at least {2 * self.rank} prompts, not {self.prompts}: half find directions"
            )


@dataclass(frozen=True, kw_only=True)
class RopePositions(FirstToken):
    """Rotary indices of the first token replaced and swapped: what Table 7 does to the position vectors of GPT2-XL."""

    eps: float = 0.3
    """attention that a key must receive on average to be a head's sink"""
    places: tuple[int, ...] = (4, 9, 14, 19, 24, 29)
    """positions t, counted from 0, whose index the first token takes or swaps with its own"""
    shift: int = 100
    """added to all indices alike, which must change nothing"""
    repeat_prompts: int = 16
    """prompts of one token repeated"""
    control_prompts: int = 8
    """prompts of text on which the controls are measured, the first of all"""
    published_places: tuple[int, ...] = ()
    """places, counted from 0, for which Table 7 gives rates of GPT2-XL"""
    published_taken: tuple[float, ...] = ()
    """there, per cent of heads that sink on key 0 once p_1 is replaced by p_t, one for each of published_places"""
    published_swapped: tuple[float, ...] = ()
    """there, per cent of heads that sink on key 0 once p_1 and p_t are swapped"""
    published_moved: tuple[float, ...] = ()
    """there, per cent of heads that sink on key t once p_1 and p_t are swapped"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, repeat_prompts=1, control_prompts=1, shift=1)
        share(self, "eps")
        if not self.places:
            raise SinkjaxError("places is empty: at least one position is needed")
        for place in self.places:
            if not 0 < place < self.length or self.places.count(place) > 1:
                raise SinkjaxError(f"places must be different positions from 1 to {self.length - 1}, and holds {place}")
        for name in ("published_taken", "published_swapped", "published_moved"):
            if len(getattr(self, name)) != len(self.published_places):
                raise SinkjaxError(f"{name} needs one number for each of published_places, {len(self.published_places)}")


@dataclass(frozen=True, kw_only=True)
class RepeatBound(Study):
    """The bound on attention in a prompt of one token repeated, under rotary positions (Propositions 1 to 4)."""

    prompts: int = 16
    """tokens, each repeated in a prompt of its own"""
    eps: float = 0.3
    """attention that a key must receive on average to be a head's sink"""
    longest: int = 4096
    """tokens of the longest prompt for which attention is computed in closed form, at most the model's context"""
    tolerance: float = 1e-4
    """rounding allowed to the float32 forward: of a hidden state relative to its largest entry, and of an attention weight"""

    def __post_init__(self) -> None:
        super().__post_init__()
        share(self, "eps")
        share(self, "tolerance")
        if self.longest < self.length:
            raise SinkjaxError(f"longest must be at least length ({self.length}), not {self.longest}")
