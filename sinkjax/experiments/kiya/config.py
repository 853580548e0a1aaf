"""The configs of the experiments of Kiya et al. 2026. This module imports no JAX."""

from __future__ import annotations

from dataclasses import dataclass

from sinkjax.config_files.checks import MIN_QUERIES, above, at_least, below, each_once, layers_from_0, share
from sinkjax.errors import SinkjaxError
from sinkjax.studies.config import Controlled, Study


@dataclass(frozen=True, kw_only=True)
class Mask(Controlled):
    """Mask the logits towards one key in each single layer, in layers 0 to l, in all layers, and in some heads (Figs. 4, 8)."""

    key: int = 0
    """the key that is masked; key + 1 is where the paper finds the sink afterwards"""
    controls: int = 20
    """random controls for each budget of layers: another key masked in as many random layers"""
    head_shares: tuple[float, ...] = (0.1, 0.5)
    """shares of all heads that are masked as a set, in whole layers' worth of heads"""
    map_layers: tuple[int, ...] = (0, 10, 20)
    """layers whose attention maps are drawn"""
    loss: bool = True
    """whether to measure the loss too, which takes a third of the time"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, key=0, length=3)
        below(self, "key", "length")
        if not self.head_shares or not all(0 < part < 1 for part in self.head_shares):
            raise SinkjaxError(f"head_shares must hold at least one number, each between 0 and 1, not {list(self.head_shares)}")
        if self.key + 1 >= self.length:
            raise SinkjaxError(f"key {self.key} is the last of {self.length} positions, so the sink has nowhere to move")
        layers_from_0(self, "map_layers")


@dataclass(frozen=True, kw_only=True)
class Baseline(Study):
    """No edit: attention and activations by layer, once without and once with the BOS before the same text (Figs. 1a and 6).

    The BOS is `bos` if that is a token id, else the one that the model's files name; a model without one runs without.
    """

    eps: float = 0.3
    """attention that a key must receive on average to be a head's sink (Gu et al. 2025)"""
    onset: float = 0.5
    """share of a layer's heads that must sink on position 0 for the layer to count as the sink's onset"""
    massive: float = 10.0
    """how many times larger |h| must be at position 0 than at a typical (the median) other position to be massive"""
    map_layers: tuple[int, ...] = (0, 1, 2, 5, 10, 20)
    """layers whose attention maps are drawn"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, length=16)
        above(self, massive=1)
        share(self, "eps")
        share(self, "onset")
        layers_from_0(self, "map_layers")


@dataclass(frozen=True, kw_only=True)
class BosSwap(Controlled):
    """The embedding of the first token changes places with that of a later one, with and without a BOS (Figs. 2 and 7).

    The BOS is `bos` if that is a token id, else the one that the model's files name; a model without one runs without.
    """

    positions: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    """where the first token's embedding goes, one arm each"""
    shown: int = 8
    """the one of them of which maps and layers are drawn"""
    massive: float = 10.0
    """how many times larger |h| must be at a position than at a typical (the median) one that is not swapped to be massive"""
    controls: int = 20
    """random swaps of two other positions"""
    map_layers: tuple[int, ...] = (0, 5, 20)
    """layers whose attention maps are drawn"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, length=16)
        above(self, massive=1)
        layers_from_0(self, "map_layers")
        _positions(self, self.length - MIN_QUERIES, "queries")


@dataclass(frozen=True, kw_only=True)
class Rope(Study):
    """Scores of the first block between a mean query at rotary index i and a BOS or mean key at index j (Fig. 3).

    No text is read. The BOS is `bos` if that is a token id, else the one that the model's files name.
    """

    special: bool = False
    """whether special tokens other than the BOS enter the mean embedding"""
    indices: int = 128
    """rotary indices of queries and keys: 0 to indices - 1"""
    eps: float = 0.3
    """attention that a key must receive on average to be a head's sink (Gu et al. 2025)"""
    controls: int = 200
    """random ordinary tokens whose keys take the place of the BOS's"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, indices=16, controls=1)
        share(self, "eps")


def _positions(config: BosSwap, last: int, queries: str) -> None:
    """Raise unless `positions` are different ones after the first that enough queries see, and `shown` is one of them."""
    each_once(config, "positions")
    for position in config.positions:
        if not 1 <= position <= last:
            raise SinkjaxError(f"positions has {position}, but must lie in 1 to {last}: a sink needs {MIN_QUERIES} {queries}")
    if config.shown not in config.positions:
        raise SinkjaxError(f"shown must be one of positions ({', '.join(map(str, config.positions))}), not {config.shown}")
