"""The configs of the experiments of the background papers. This module imports no JAX."""

from __future__ import annotations

from dataclasses import dataclass

from sinkjax.config_files.checks import at_least, below, seen
from sinkjax.errors import SinkjaxError
from sinkjax.studies.config import Controlled


@dataclass(frozen=True, kw_only=True)
class Background(Controlled):
    """What the background experiments share."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, length=8)


@dataclass(frozen=True, kw_only=True)
class Massive(Background):
    """Massive activations by Sun et al.'s rule, and what setting them to zero or to their mean does (Sun et al. 2024)."""

    position: int = 0
    """position whose activations are set"""
    dims: int = 2
    """how many of the largest dims are set (Sun et al.: two)"""
    layer_prompts: int = 16
    """prompts on which the activations are set after each layer in turn"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, position=0, dims=1, layer_prompts=1)
        below(self, "position", "length")


@dataclass(frozen=True, kw_only=True)
class Streaming(Background):
    """A sliding window of keys that keeps the first 0, 1, 2 or 4 tokens (Xiao et al. 2024, StreamingLLM).

    Positions stay those of the whole text, where StreamingLLM counts them inside its cache.
    """

    length: int = 128
    """tokens of each passage, BOS included"""
    cache: int = 32
    """keys that a query sees, first ones and last ones together; the claims and the controls are about this size"""
    other_caches: tuple[int, ...] = (8, 16)
    """further sizes, without controls"""
    first: tuple[int, ...] = (0, 1, 2, 4)
    """how many first tokens are kept, the rest of the cache being the last ones"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, cache=2)
        for name, values in (("other_caches", (self.cache, *self.other_caches)), ("first", self.first)):
            if len(set(values)) < len(values):
                raise SinkjaxError(f"{name} names a size twice: {', '.join(map(str, values))}")
        if self.first[:1] != (0,) or len(self.first) < 2 or min(self.first) < 0:
            raise SinkjaxError(f"first must begin with 0, what the others are compared with, and go on, not {self.first}")
        if max(self.first) >= min(self.caches):
            raise SinkjaxError(f"a cache of {min(self.caches)} keys cannot keep {max(self.first)} first ones and a last one")
        if max(self.caches) + 2 > self.length:
            raise SinkjaxError(f"a cache of {max(self.caches)} keys is never full in {self.length} tokens")

    @property
    def caches(self) -> tuple[int, ...]:
        """All sizes, ascending."""
        return tuple(sorted({self.cache, *self.other_caches}))


@dataclass(frozen=True, kw_only=True)
class Elsewhere(Background):
    """Sinks and massive activations on other tokens than the first, and which of the two comes first (Sun et al. 2024)."""

    delimiters: tuple[str, ...] = (".", "\n", ",", ";", ":")
    """tokens of which it is claimed; each must be one token of the model"""
    words: tuple[str, ...] = (" the", " of", " and")
    """frequent words beside them"""
    place: int = 8
    """position at which each of these tokens is put, in place of the text's own"""
    placed_prompts: int = 16
    """prompts in which they are put there"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, place=1, placed_prompts=1)
        seen(self, self.place, "place")
        if not self.delimiters or "" in (*self.delimiters, *self.words):
            raise SinkjaxError("delimiters lists at least one token, and none of the tokens may be empty")


@dataclass(frozen=True, kw_only=True)
class Patch(Background):
    """Values of a run whose sink was moved by a mask, put into the unedited run by layer and site (activation patching)."""

    prompts: int = 16
    """passages of text; each has its own donor"""
    control_prompts: int = 4
    """prompts on which the controls are measured, the first of all; there are ten kinds of them"""
    key: int = 0
    """the key that is masked in the donor run; values are patched at key + 1, where its sink is then"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, key=0)
        if self.key + 3 > self.length:
            raise SinkjaxError(f"key {self.key} of {self.length} positions leaves none to patch and another for the controls")


@dataclass(frozen=True, kw_only=True)
class Compression(Background):
    """Entropy of the hidden states by depth, and what dropping the first token's MLP does to it (Queipo-de-Llano et al. 2026)."""

    position: int = 0
    """whose MLP output is dropped"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, position=0)
        seen(self, self.position, "position")


@dataclass(frozen=True, kw_only=True)
class Quantise(Background):
    """Error of activations rounded to 8 bits with one scale a tensor, with and without the massive activation."""

    position: int = 0
    """where the massive activation is"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, position=0)
        seen(self, self.position, "position")
